// The reference interpreter: readable, wide, and the oracle for everything that is faster.
#pragma once
#include <unordered_map>

#include "ir/graph_data.h"

namespace rlx {

using Feeds = std::unordered_map<std::string, Array>;

/// The value of one node from those of its inputs. Floats are computed in f64 and rounded once to the node's dtype;
/// the sizes of the output are the node's under `symbols`.
Array evaluate_node(Node node, std::span<const Array> in, const Bindings& symbols);
/// The same of an op without a node, for constant folding and tests.
Array evaluate_op(const EvalArgs& args);
/// The reference of a reduction: its formula folded over the elements in their order.
Array evaluate_fold(const EvalArgs& args);
/// The values of `nodes`. Feeds hold inputs and params by name; symbols are bound from their shapes, or given.
std::vector<Array> evaluate(std::span<const Node> nodes, const Feeds& feeds, Bindings symbols = {});
inline Array evaluate(Node node, const Feeds& feeds) { return evaluate(std::span(&node, 1), feeds)[0]; }
/// Checks a value against its leaf and binds the leaf's symbols; throws UserError that names graph and leaf.
void bind_leaf(Node leaf, const Array& value, Bindings& symbols);

/// Calls f(coords, i) for each element of a shape in row-major order.
template <class F> void for_each_coords(const Extents& shape, F&& f) {
  Coords at(shape.size());
  for (std::int64_t i = 0, n = count(shape); i < n; ++i) {
    f(at, i);
    for (int d = int(shape.size()) - 1; d >= 0 && ++at[std::size_t(d)] == shape[std::size_t(d)]; --d) at[std::size_t(d)] = 0;
  }
}
/// The position of `at` in a tensor of `shape` that is broadcast to a shape of at.size() axes.
inline std::int64_t offset_of(const Coords& at, const Extents& shape) {
  std::int64_t out = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) out = out * shape[d] + (shape[d] == 1 ? 0 : at[at.size() - shape.size() + d]);
  return out;
}

}  // namespace rlx
