// What the passes that quantise weights share: which leaf an operand comes from, and what reports call a node.
#pragma once
#include "ir/graph_data.h"
#include "rlx/transform.h"

namespace rlx {

bool is_leaf(Node n);
/// Products whose second operand is usually a weight.
bool takes_weight(Node n);
/// `const#<id>` where a constant has no name.
std::string leaf_name(Node leaf);
/// The name, or the op and id.
std::string report_label(Node n);
/// From an operand down to the leaf that it is made of by transpose, reshape, cast and expand; ends in another node
/// where it is computed.
Nodes path_to_leaf(Node operand);
bool contains(const std::vector<std::string>& names, std::string_view name);

}  // namespace rlx
