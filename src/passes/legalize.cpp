// Composites become their bodies: those that a target does not claim, or the backward ones.
#include <algorithm>
#include <array>

#include "passes/passes.h"

namespace rlx {

Rewritten legalize(const Graph& graph, const std::function<bool(Node)>& claims) {
  return expand_bodies(graph, [&](Node n) { return n.op().kind == Kind::Composite && !claims(n); });
}

static bool is_backward(Node node) {
  static constexpr std::array<std::string_view, 5> kOps = {
      "activation_backward", "relu_backward", "batch_norm_inference_backward_input",
      "batch_norm_inference_backward_gamma", "batch_norm_inference_backward_beta"};
  return std::ranges::find(kOps, node.op().name) != kOps.end();
}

Graph lower_backward_ops(const Graph& graph) { return expand_bodies(graph, is_backward, Keep::All).graph; }

}  // namespace rlx
