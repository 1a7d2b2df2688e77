#include "passes/weights.h"

#include <fmt/format.h>

#include <algorithm>

#include "rlx/ops.h"

namespace rlx {

bool is_leaf(Node n) { return n.is(input_op) || n.is(param_op) || n.is(constant_op); }
bool takes_weight(Node n) {
  return n.is(ops::matmul) || n.is(ops::dot_general) || n.is(ops::conv) || n.is(ops::conv_transpose);
}
std::string leaf_name(Node leaf) { return leaf.name().empty() ? fmt::format("const#{}", leaf.id()) : leaf.name(); }
std::string report_label(Node n) { return n.name().empty() ? fmt::format("{} %{}", n.op().name, n.id()) : n.name(); }

Nodes path_to_leaf(Node operand) {
  Nodes path{operand};
  while (path.back().is(ops::transpose) || path.back().is(ops::reshape) || path.back().is(ops::cast) ||
         path.back().is(ops::expand))
    path.push_back(path.back().input(0));
  return path;
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace rlx
