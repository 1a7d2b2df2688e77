// The graph and the light Node handle that builds it. Ops are in rlx/ops.h, the form of an op in rlx/op_def.h.
#pragma once
#include <functional>
#include <optional>

#include "rlx/array.h"

namespace rlx {

struct OpDef;
struct NodeData;
class Attrs;
class Graph;
class GraphData;

/// A handle to one value of a graph; it is valid as long as a Graph that holds the value lives. A number stands for a
/// constant that takes the dtype of the tensors it meets. A default Node is no value (`none`).
class Node {
 public:
  Node() = default;
  Node(double number) : number_(number), is_number_(true) {}  // NOLINT: x * 2 is the point
  Node(GraphData* graph, int id) : graph_(graph), id_(id) {}

  explicit operator bool() const { return graph_ || is_number_; }
  bool is_number() const { return is_number_; }
  double number() const { return number_; }
  Graph graph() const;
  int id() const { return id_; }
  const OpDef& op() const;
  bool is(const OpDef& op) const { return graph_ && &this->op() == &op; }
  const std::vector<Node>& inputs() const;
  Node input(int i) const { return inputs().at(std::size_t(i)); }
  const Type& type() const;
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  int rank() const { return int(shape().size()); }
  /// The size of an axis, which may be negative.
  const Dim& dim(int axis) const;
  const Attrs& attrs() const;
  template <class T> const T& attrs() const;
  /// The first of its names, or "".
  const std::string& name() const;
  const std::vector<std::string>& names() const;
  /// Where it came from; one entry for each node that was merged into it.
  const std::vector<std::string>& origins() const;
  /// Adds a name (not to a leaf, whose name it was made with) and gives the node back.
  Node named(std::string name) const;
  /// `%3 "x" f32[4,3]`
  std::string text() const;

  friend bool same(Node a, Node b) { return a.graph_ == b.graph_ && a.id_ == b.id_ && a.graph_; }

 private:
  friend class Graph;
  friend class GraphData;
  GraphData* graph_ = nullptr;
  int id_ = -1;
  double number_ = 0;
  bool is_number_ = false;
};
using Nodes = std::vector<Node>;
inline const Node none{};
/// `mul(x, 1)`: a small expression in one line, by names where nodes have one.
std::string expression(Node root);

/// A tensor program: nodes in topological order, interned by op, inputs and attributes (leaves with a name and random
/// nodes are never merged), and a list of outputs. A handle: copies share the program.
class Graph {
 public:
  enum class Mode { Program, Pattern };  // a pattern has no types and merges nothing
  explicit Graph(Mode mode = Mode::Program);
  explicit Graph(std::shared_ptr<GraphData> data) : data_(std::move(data)) {}

  /// A value fed at each run. Throws UserError where the name is empty or taken by another leaf.
  Node input(std::string name, Type type);
  Node input(std::string name, DType dtype, Shape shape) { return input(std::move(name), Type{dtype, std::move(shape)}); }
  /// A value set once and kept by the compiled graph.
  Node param(std::string name, Type type);
  Node param(std::string name, DType dtype, Shape shape) { return param(std::move(name), Type{dtype, std::move(shape)}); }
  /// A scalar of `dtype`. Throws UserError where the value is none of the dtype's (0.5 as i32).
  Node constant(double value, DType dtype);
  /// The bytes are kept, not copied: don't change them afterwards.
  Node constant(Array value, std::string name = "");
  /// In a pattern: stands for any node.
  Node any(std::string name);
  /// Checks inputs and attributes, infers the type, and gives the node, an existing one where it is equal.
  Node make(const OpDef& op, Nodes inputs, Attrs attrs);
  Node make(const OpDef& op, Nodes inputs);

  bool is_pattern() const;
  int size() const;
  Node node(int id) const;
  /// The leaf of that name, or none.
  Node find_leaf(std::string_view name) const;
  /// The last node of that name, leaf or not, or none.
  Node find(std::string_view name) const;
  Nodes inputs() const;
  Nodes params() const;

  const Nodes& outputs() const;
  /// Throws UserError where one is of another graph.
  void set_outputs(Nodes outputs);
  void add_output(Node output);

  /// Given to the nodes that are made from now on (a source line, an imported file and node, a pass).
  void set_origin(std::string origin);
  const std::string& origin() const;
  /// Adds names and origins of a node to another, of this graph. What a pass calls for the node it puts in place.
  void inherit(Node to, Node from, std::string_view rule = "");
  /// A random stream number that no node of this graph has yet.
  std::int64_t new_stream();

  /// One line a node; Graph::parse reads it back to an equal graph, constants to the bit.
  std::string text() const;
  /// Throws UserError that names the line.
  static Graph parse(std::string_view text);
  /// Checks every invariant: order, arity, attributes, types inferred anew, unique leaf names, outputs. Throws
  /// InternalError that names the node.
  void verify() const;

  GraphData& data() const { return *data_; }
  friend bool same(const Graph& a, const Graph& b) { return a.data_ == b.data_; }

 private:
  std::shared_ptr<GraphData> data_;
};

/// Makes a node in the graph of its inputs. Throws UserError where there is none among them.
Node make(const OpDef& op, Nodes inputs, Attrs attrs);
}  // namespace rlx
