// Graph → graph: gradients and the passes.
#pragma once
#include "rlx/graph.h"

namespace rlx {

// ---------------------------------------------------------------------------------------------- differentiation

/// Adds the gradients of `y` to its graph: one node for each of `wrt`, with its type; zeros where y does not depend on
/// it. `dy` is the cotangent of y, by default ones. Throws UserError where a wrt or y is not a float.
Nodes grad(Node y, const Nodes& wrt, Node dy = none);
/// A graph whose outputs are [loss, d loss / d wrt[0], …], where the loss is the source's first output. It has one more
/// input, `d_output` (`d_output_2`, … where that name is taken), the cotangent that seeds the sweep, of the loss's type.
Graph grad_with_loss(const Graph& graph, const Nodes& wrt);
/// The same, by leaf names. Throws UserError that names one that does not exist.
Graph grad_with_loss(const Graph& graph, const std::vector<std::string>& wrt);
/// Adds the forward derivative: d y / d wrt · tangents, of y's type. By two reverse sweeps.
Node jvp(Node y, const Nodes& wrt, const Nodes& tangents);
/// Adds the Hessian of the scalar `y` times `v`: one node for each of `wrt`.
Nodes hvp(Node y, const Nodes& wrt, const Nodes& v);

// ---------------------------------------------------------------------------------------------- passes

/// Expands the backward composites (activation_backward, relu_backward and the three of batch-norm inference) into
/// primitives and leaves every other node, name and origin alone. Gives the same graph where there are none.
Graph lower_backward_ops(const Graph& graph);

}  // namespace rlx
