// What a Graph handle holds.
#pragma once
#include <deque>
#include <unordered_map>

#include "rlx/op_def.h"

namespace rlx {

struct NodeData {
  const OpDef* op = nullptr;
  Nodes inputs;
  Attrs attrs;
  Type type;
  std::vector<std::string> names, origins;
};

class GraphData : public std::enable_shared_from_this<GraphData> {
 public:
  explicit GraphData(Graph::Mode mode) : mode(mode) {}

  Node make(const OpDef& op, Nodes inputs, Attrs attrs);
  Node leaf(const OpDef& op, std::string name, Type type);
  Node constant(Array value, std::string name);
  /// Adds a node whose type is known, or gives an equal one with these origins added.
  Node intern(NodeData data);

  Graph::Mode mode;
  std::deque<NodeData> nodes;  // a deque: references stay valid
  Nodes outputs;
  std::string origin;
  std::int64_t next_stream = 0;

 private:
  Node add(NodeData data);
  std::unordered_map<std::string, int> interned_;
  std::unordered_map<std::string, int> leaves_;
  friend class Graph;
};

/// The attributes of the leaves.
struct LeafAttrs {
  Type type;
  static constexpr void fields(auto& self, auto&& f) { f("type", self.type); }
};
struct ConstantAttrs {
  Array value;
  static constexpr void fields(auto& self, auto&& f) { f("value", self.value); }
};

/// The type that an op's rule gives; throws UserError without the node's place.
Type infer_type(const TypeArgs& args);
/// Copies a node into another graph on new inputs, with names and origins.
Node copy_node(Node node, Graph& to, Nodes inputs);
/// Copies all nodes of a graph into another; gives the copies by the ids of the originals.
Nodes copy_nodes(const Graph& from, Graph& to);
std::string quoted(std::string_view text);

}  // namespace rlx
