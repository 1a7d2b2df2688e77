// The type of a node: the op's own rule, or the one of its kind. And the check of a whole graph.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ir/graph_data.h"
#include "rlx/op_attrs.h"

namespace rlx {
namespace {

void check_dtype(const OpDef& op, DType d) {
  auto want = [&](bool ok, const char* what) {
    if (!ok) throw UserError(fmt::format("needs {}, got {}", what, to_string(d)));
  };
  if (d == DType::C64 && op.kind != Kind::Movement && op.name != "cast")
    throw Unsupported("complex values can only be moved, got c64");
  switch (op.dtypes) {
    case DTypes::Number: return want(is_int(d) || is_float(d), "a number");
    case DTypes::Float: return want(is_float(d), "a float");
    case DTypes::Predicate: return want(is_float(d), "a float");
    case DTypes::Int: return want(is_int(d) || d == DType::Bool, "an integer or bool");
    case DTypes::Logic: return want(d == DType::Bool, "bool");
    default: return;
  }
}

Type infer_elementwise(const TypeArgs& args) {
  Type out;
  std::size_t first = args.op.dtypes == DTypes::Select ? 1 : 0;
  if (first == 1 && args.in[0].dtype != DType::Bool)
    throw UserError(fmt::format("the condition must be bool, got {}", to_string(args.in[0].dtype)));
  for (std::size_t i = 0; i < args.in.size(); ++i) {
    out.shape = broadcast(out.shape, args.in[i].shape);
    if (i >= first) out.dtype = i == first ? args.in[i].dtype : promote(out.dtype, args.in[i].dtype);
  }
  check_dtype(args.op, out.dtype);
  if (args.op.dtypes == DTypes::Compare || args.op.dtypes == DTypes::Predicate) out.dtype = DType::Bool;
  return out;
}

Type infer_reduce(const TypeArgs& args) {
  auto& attrs = args.attrs.as<ReduceAttrs>();
  check_dtype(args.op, args.in[0].dtype);
  return {args.in[0].dtype, reduced_shape(args.in[0].shape, attrs.axes, attrs.keepdims)};
}

Type infer_composite(const TypeArgs& args) {
  Graph scratch;
  Nodes in;
  for (auto& type : args.in) in.push_back(scratch.input("#" + std::to_string(in.size()), type));
  return args.op.body({in, args.attrs, args.op}).type();
}

}  // namespace

Shape reduced_shape(const Shape& shape, const Axes& axes, bool keepdims) {
  Shape out;
  Axes reduced = normalize_axes(axes, int(shape.size()));
  for (int i = 0; i < int(shape.size()); ++i) {
    if (!std::ranges::binary_search(reduced, i)) out.push_back(shape[std::size_t(i)]);
    else if (keepdims) out.push_back(1);
  }
  return out;
}

Type infer_type(const TypeArgs& args) {
  if (args.op.infer) return args.op.infer(args);
  if (args.op.kind == Kind::Elementwise) return infer_elementwise(args);
  if (args.op.kind == Kind::Reduce) return infer_reduce(args);
  if (args.op.kind == Kind::Composite) return infer_composite(args);
  throw InternalError("the op has no shape rule");
}

static void verify_node(const Graph& graph, int id, std::set<std::string>& leaves) {
  Node node = graph.node(id);
  auto fail = [&](const std::string& why) { throw InternalError(fmt::format("verify: [{}] {}: {}", node.op().name, node.text(), why)); };
  for (auto& in : node.inputs()) {
    if (!in || in.is_number() || !same(in.graph(), graph)) fail("an input is not a node of the graph");
    if (in.id() >= id) fail(fmt::format("its input %{} does not stand before it", in.id()));
  }
  int given = int(node.inputs().size());
  if (given < node.op().min_inputs || (node.op().max_inputs >= 0 && given > node.op().max_inputs)) fail("wrong number of inputs");
  if (node.attrs().info() != node.op().attrs) fail("attributes of another op");
  if (node.is(input_op) || node.is(param_op)) {
    if (!leaves.insert(node.name()).second) fail("another leaf has its name");
    return;
  }
  if (node.is(constant_op)) {
    if (node.attrs<ConstantAttrs>().value.type() != node.type()) fail("its value has another type");
    return;
  }
  if (node.op().kind == Kind::Leaf) fail("an op for patterns only");
  std::vector<Type> types;
  for (auto& in : node.inputs()) types.push_back(in.type());
  Type type;
  try {
    type = infer_type({types, node.attrs(), node.op()});
  } catch (const Error& e) {
    fail(e.what());
  }
  if (type != node.type()) fail("its rule gives " + to_string(type));
}

void Graph::verify() const {
  if (is_pattern()) throw InternalError("verify: a pattern is not a program");
  std::set<std::string> leaves;
  for (int id = 0; id < size(); ++id) verify_node(*this, id, leaves);
  for (auto& out : outputs())
    if (!out || !same(out.graph(), *this)) throw InternalError("verify: an output is not a node of the graph");
}

}  // namespace rlx
