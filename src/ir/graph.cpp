// Building: leaves, interning, checks when a node is made.
#include "ir/graph_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace rlx {

constinit const OpDef input_op = {.name = "input", .attrs = &kAttrsInfo<LeafAttrs>, .doc = "A value fed at each run."};
constinit const OpDef param_op = {
    .name = "param", .attrs = &kAttrsInfo<LeafAttrs>, .doc = "A value set once and kept by the compiled graph."};
constinit const OpDef constant_op = {
    .name = "constant", .attrs = &kAttrsInfo<ConstantAttrs>, .doc = "Bytes in the graph."};
constinit const OpDef any_op = {.name = "anything", .doc = "Stands for any node in a pattern."};

// ---------------------------------------------------------------------------------------------- Node

Graph Node::graph() const {
  if (!graph_) throw UserError("a node without a graph was used where one with a graph is needed");
  return Graph(graph_->shared_from_this());
}
const OpDef& Node::op() const { return *graph_->nodes[std::size_t(id_)].op; }
const std::vector<Node>& Node::inputs() const { return graph_->nodes[std::size_t(id_)].inputs; }
const Type& Node::type() const {
  if (!graph_) throw UserError(is_number_ ? "a plain number has no type until it meets a tensor" : "an empty node has no type");
  return graph_->nodes[std::size_t(id_)].type;
}
const Dim& Node::dim(int axis) const { return shape()[std::size_t(normalize_axis(axis, rank()))]; }
const Attrs& Node::attrs() const { return graph_->nodes[std::size_t(id_)].attrs; }
const std::string& Node::name() const {
  static const std::string nothing;
  return !graph_ || names().empty() ? nothing : names().front();
}
const std::vector<std::string>& Node::names() const { return graph_->nodes[std::size_t(id_)].names; }
const std::vector<std::string>& Node::origins() const { return graph_->nodes[std::size_t(id_)].origins; }

Node Node::named(std::string name) const {
  if (!graph_) throw UserError("named: needs a node, got a number or an empty one");
  auto& data = graph_->nodes[std::size_t(id_)];
  if (data.op == &input_op || data.op == &param_op) {
    if (name != data.names.front())
      throw UserError(fmt::format("named: the leaf {} keeps the name it was made with, got \"{}\"", text(), name));
    return *this;
  }
  if (name.empty()) throw UserError("named: a name cannot be empty");
  if (std::ranges::find(data.names, name) == data.names.end()) data.names.push_back(std::move(name));
  return *this;
}

std::string Node::text() const {
  if (is_number_) return fmt::format("{}", number_);
  if (!graph_) return "none";
  std::string out = "%" + std::to_string(id_);
  if (!name().empty()) out += " " + quoted(name());
  if (graph_->mode == Graph::Mode::Program) out += " " + to_string(type());
  return out;
}

// A graph that shares nodes can have exponentially many paths, so what lies deep is left out.
static std::string expression(Node root, int depth) {
  if (!root) return "none";
  if (root.is_number()) return fmt::format("{}", root.number());
  if (root.is(constant_op)) {
    auto& value = root.attrs<ConstantAttrs>().value;
    if (value.size() == 1) return fmt::format("{}", value.at(0));
  }
  if (!root.name().empty()) return root.name();
  if (root.is(constant_op)) return "constant " + to_string(root.type());
  if (depth == 0) return std::string(root.op().name) + "(…)";
  std::string out = std::string(root.op().name) + "(";
  for (auto& in : root.inputs()) out += (&in == root.inputs().data() ? "" : ", ") + expression(in, depth - 1);
  return out + ")";
}
std::string expression(Node root) { return expression(root, 6); }

// ---------------------------------------------------------------------------------------------- GraphData

Node GraphData::add(NodeData data) {
  nodes.push_back(std::move(data));
  return {this, int(nodes.size()) - 1};
}

Node GraphData::leaf(const OpDef& op, std::string name, Type type) {
  if (name.empty()) throw UserError(fmt::format("[{}] needs a name", op.name));
  if (type.dtype == DType::Any && mode == Graph::Mode::Program)
    throw UserError(fmt::format("[{}] \"{}\" needs a dtype", op.name, name));
  for (auto& dim : type.shape)
    if (dim.is_number() && dim.number() < 0)
      throw UserError(fmt::format("[{}] \"{}\" has a negative size: {}", op.name, name, to_string(type)));
  if (auto it = leaves_.find(name); it != leaves_.end())
    throw UserError(fmt::format("[{}] the name \"{}\" is taken by {}", op.name, name, Node(this, it->second).text()));
  leaves_.emplace(name, int(nodes.size()));
  Attrs attrs = LeafAttrs{type};
  return add({&op, {}, std::move(attrs), std::move(type), {std::move(name)}, origin.empty() ? std::vector<std::string>{} : std::vector{origin}});
}

Node GraphData::constant(Array value, std::string name) {
  Type type = value.type();
  NodeData data{&constant_op, {}, ConstantAttrs{std::move(value)}, std::move(type), {}, {}};
  if (!origin.empty()) data.origins.push_back(origin);
  if (name.empty()) return intern(std::move(data));
  data.names.push_back(std::move(name));  // a named constant is a leaf of its own, as a weight is
  return add(std::move(data));
}

namespace {

// What makes two nodes one. Large constants are equal when they share their bytes.
std::string intern_key(const NodeData& data) {
  std::string key(data.op->name);
  for (auto& in : data.inputs) key += fmt::format(" {}", in.id());
  if (data.op == &constant_op) {
    auto& value = data.attrs.as<ConstantAttrs>().value;
    if (value.byte_size() > 256) return key + fmt::format(" {} @{}", to_string(data.type), static_cast<void*>(value.bytes()));
    key.append(to_string(data.type)).append(" ");
    return key.append(reinterpret_cast<const char*>(value.bytes()), value.byte_size());
  }
  return key + "{" + data.attrs.text() + "}";
}

void merge_into(std::vector<std::string>& to, const std::vector<std::string>& from) {
  for (auto& s : from)
    if (std::ranges::find(to, s) == to.end()) to.push_back(s);
}

}  // namespace

Node GraphData::intern(NodeData data) {
  if (mode == Graph::Mode::Pattern || data.op->kind == Kind::Random) return add(std::move(data));
  auto [it, fresh] = interned_.try_emplace(intern_key(data), int(nodes.size()));
  if (fresh) return add(std::move(data));
  merge_into(nodes[std::size_t(it->second)].origins, data.origins);
  return {this, it->second};
}

Node GraphData::make(const OpDef& op, Nodes inputs, Attrs attrs) {
  auto fail = [&]<class E>(const E& e) {
    std::string what = e.what(), args;
    for (auto& in : inputs) args += (args.empty() ? "" : ", ") + in.text();
    if (!attrs.text().empty()) args += (args.empty() ? "" : "; ") + attrs.text();
    throw E(fmt::format("[{}] {} (in {}({}){})", op.name, what, op.name, args, origin.empty() ? "" : ", " + origin));
  };
  int given = int(inputs.size());
  try {
    if (given < op.min_inputs || (op.max_inputs >= 0 && given > op.max_inputs))
      throw UserError(fmt::format("takes {} inputs, got {}", op.min_inputs == op.max_inputs ? std::to_string(op.min_inputs)
                                  : op.max_inputs < 0 ? fmt::format("at least {}", op.min_inputs)
                                                      : fmt::format("{} to {}", op.min_inputs, op.max_inputs), given));
    if (attrs.info() != op.attrs) throw UserError("got the attributes of another op");
    DType met = DType::Any;  // what a plain number becomes
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      auto& in = inputs[i];
      if (!in) throw UserError(fmt::format("input {} is empty", i));
      if (in.is_number()) continue;
      if (in.graph_ != this) throw UserError("inputs are of different graphs");
      bool condition = op.dtypes == DTypes::Select && i == 0;
      if (mode == Graph::Mode::Program && !condition) met = met == DType::Any ? in.dtype() : promote(met, in.dtype());
    }
    for (auto& in : inputs)
      if (in.is_number())
        in = mode == Graph::Mode::Pattern ? constant(Array::scalar(in.number(), DType::F64), "")
                                          : Graph(shared_from_this()).constant(in.number(), met == DType::Any ? DType::F32 : met);
    NodeData data{&op, std::move(inputs), std::move(attrs), {}, {}, {}};
    if (!origin.empty()) data.origins.push_back(origin);
    inputs = data.inputs;
    attrs = data.attrs;
    if (mode == Graph::Mode::Pattern) return add(std::move(data));
    std::vector<Type> types;
    for (auto& in : inputs) types.push_back(in.type());
    data.type = infer_type({types, attrs, op});
    return intern(std::move(data));
  } catch (const UserError& e) {
    fail(e);
  } catch (const Unsupported& e) {
    fail(e);
  } catch (const InternalError& e) {
    fail(e);
  }
  throw InternalError("unreachable");
}

Node make(const OpDef& op, Nodes inputs, Attrs attrs) {
  for (auto& in : inputs)
    if (in && !in.is_number()) {
      Graph graph = in.graph();
      return graph.make(op, std::move(inputs), std::move(attrs));
    }
  throw UserError(fmt::format("[{}] needs at least one node among its inputs", op.name));
}

// ---------------------------------------------------------------------------------------------- Graph

Graph::Graph(Mode mode) : data_(std::make_shared<GraphData>(mode)) {}
Node Graph::input(std::string name, Type type) { return data_->leaf(input_op, std::move(name), std::move(type)); }
Node Graph::param(std::string name, Type type) { return data_->leaf(param_op, std::move(name), std::move(type)); }
Node Graph::constant(Array value, std::string name) { return data_->constant(std::move(value), std::move(name)); }
Node Graph::constant(double value, DType dtype) {
  if ((is_int(dtype) || dtype == DType::Bool) && Array::scalar(value, dtype).at(0) != value)
    throw UserError(fmt::format("[constant] {} is not a value of {}", value, to_string(dtype)));
  return data_->constant(Array::scalar(value, dtype), "");
}
Node Graph::any(std::string name) {
  if (!is_pattern()) throw UserError("[any] is for patterns only");
  return data_->add({&any_op, {}, {}, {}, {std::move(name)}, {}});
}
Node Graph::make(const OpDef& op, Nodes inputs, Attrs attrs) { return data_->make(op, std::move(inputs), std::move(attrs)); }
Node Graph::make(const OpDef& op, Nodes inputs) { return data_->make(op, std::move(inputs), Attrs()); }

bool Graph::is_pattern() const { return data_->mode == Mode::Pattern; }
int Graph::size() const { return int(data_->nodes.size()); }
Node Graph::node(int id) const { return {data_.get(), id}; }

Node Graph::find_leaf(std::string_view name) const {
  auto it = data_->leaves_.find(std::string(name));
  return it == data_->leaves_.end() ? none : node(it->second);
}
Node Graph::find(std::string_view name) const {
  for (int id = size() - 1; id >= 0; --id)
    if (std::ranges::find(node(id).names(), name) != node(id).names().end()) return node(id);
  return none;
}
static Nodes leaves_of(const Graph& graph, const OpDef& op) {
  Nodes out;
  for (int id = 0; id < graph.size(); ++id)
    if (graph.node(id).is(op)) out.push_back(graph.node(id));
  return out;
}
Nodes Graph::inputs() const { return leaves_of(*this, input_op); }
Nodes Graph::params() const { return leaves_of(*this, param_op); }

const Nodes& Graph::outputs() const { return data_->outputs; }
void Graph::set_outputs(Nodes outputs) {
  for (auto& out : outputs)
    if (out.graph_ != data_.get()) throw UserError("set_outputs: the node " + out.text() + " is not of this graph");
  data_->outputs = std::move(outputs);
}
void Graph::add_output(Node output) {
  if (output.graph_ != data_.get()) throw UserError("add_output: the node " + output.text() + " is not of this graph");
  data_->outputs.push_back(output);
}

void Graph::set_origin(std::string origin) { data_->origin = std::move(origin); }
const std::string& Graph::origin() const { return data_->origin; }
std::int64_t Graph::new_stream() { return data_->next_stream++; }

void Graph::inherit(Node to, Node from, std::string_view rule) {
  auto& data = data_->nodes.at(std::size_t(to.id()));
  if (data.op != &input_op && data.op != &param_op) merge_into(data.names, from.names());
  std::vector<std::string> origins = from.origins();
  if (!rule.empty()) {
    if (origins.empty()) origins.emplace_back();
    for (auto& o : origins) o += (o.empty() ? "by " : ", by ") + std::string(rule);
  }
  merge_into(data.origins, origins);
}

Node copy_node(Node node, Graph& to, Nodes inputs) {
  std::string saved = to.origin();
  to.set_origin("");
  Node out;
  if (node.is(input_op)) out = to.input(node.name(), node.type());
  else if (node.is(param_op)) out = to.param(node.name(), node.type());
  else if (node.is(constant_op)) out = to.constant(node.attrs<ConstantAttrs>().value, node.name());
  else if (std::ranges::equal(inputs, node.inputs(), {}, &Node::type, &Node::type))  // the type is known
    out = to.data().intern({&node.op(), std::move(inputs), node.attrs(), node.type(), {}, {}});
  else out = to.make(node.op(), std::move(inputs), node.attrs());
  to.set_origin(std::move(saved));
  to.inherit(out, node);
  if (node.op().kind == Kind::Random) to.data().next_stream = std::max(to.data().next_stream, node.graph().data().next_stream);
  return out;
}

Nodes copy_nodes(const Graph& from, Graph& to) {
  Nodes copies;
  for (int id = 0; id < from.size(); ++id) {
    Nodes inputs;
    for (auto& in : from.node(id).inputs()) inputs.push_back(copies[std::size_t(in.id())]);
    copies.push_back(copy_node(from.node(id), to, std::move(inputs)));
  }
  return copies;
}

}  // namespace rlx
