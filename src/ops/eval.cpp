#include "ops/eval.h"

#include <fmt/format.h>

#include <algorithm>

#include "rlx/op_attrs.h"

namespace rlx {
namespace {

// The dtype that a formula is computed in: f64, or 64-bit integers of the operands' signedness.
DType wide(DType d) { return is_float(d) ? DType::F64 : is_unsigned_int(d) ? DType::U64 : DType::I64; }

template <class T> Array eval_formula(T (*formula)(const T*), const EvalArgs& args) {
  std::vector<Array> in;
  for (auto& a : args.in) in.push_back(a.cast(dtype_of<T>()));
  std::vector<std::span<T>> values;
  for (auto& a : in) values.push_back(a.template values<T>());
  Array out(dtype_of<T>(), args.shape);
  auto result = out.template values<T>();
  T operands[4];
  for_each_coords(args.shape, [&](const Coords& at, std::int64_t i) {
    for (std::size_t k = 0; k < in.size(); ++k) operands[k] = values[k][std::size_t(offset_of(at, in[k].shape()))];
    result[std::size_t(i)] = formula(operands);
    if constexpr (std::integral<T>)
      if (args.dtype == DType::Bool && args.op.dtypes == DTypes::Int) result[std::size_t(i)] &= 1;  // a bool is one bit
  });
  return out.cast(args.dtype);
}

Array eval_elementwise(const EvalArgs& args) {
  DType d = DType::Any;
  for (std::size_t i = args.op.dtypes == DTypes::Select; i < args.in.size(); ++i)
    d = d == DType::Any ? args.in[i].dtype() : promote(d, args.in[i].dtype());
  auto& f = args.op.formula;
  switch (wide(d)) {
    case DType::I64: if (f.i64) return eval_formula<std::int64_t>(f.i64, args); break;
    case DType::U64: if (f.u64) return eval_formula<std::uint64_t>(f.u64, args); break;
    default: if (f.f64) return eval_formula<double>(f.f64, args); break;
  }
  throw InternalError(fmt::format("[{}] has no formula for {}", args.op.name, to_string(d)));
}

template <class T> Array eval_fold(T (*combine)(const T*), const EvalArgs& args) {
  auto& attrs = args.attrs.as<ReduceAttrs>();
  Array x = args.in[0].cast(dtype_of<T>());
  Extents kept = x.shape();
  for (int axis : normalize_axes(attrs.axes, int(kept.size()))) kept[std::size_t(axis)] = 1;
  Array out(dtype_of<T>(), kept);
  auto folded = out.template values<T>();
  auto values = x.template values<T>();
  T init;  // an infinity stands for the least or the greatest integer
  if constexpr (std::same_as<T, double>) init = args.op.init;
  else init = Array::scalar(args.op.init, args.in[0].dtype()).cast(dtype_of<T>()).template values<T>()[0];
  std::ranges::fill(folded, init);
  for_each_coords(x.shape(), [&](const Coords& at, std::int64_t i) {
    T& value = folded[std::size_t(offset_of(at, kept))];
    T operands[2] = {value, values[std::size_t(i)]};
    value = combine(operands);
  });
  return out.reshaped(args.shape).cast(args.dtype);
}

}  // namespace

Array evaluate_fold(const EvalArgs& args) {
  auto& f = args.op.formula;
  switch (wide(args.in[0].dtype())) {
    case DType::I64: if (f.i64) return eval_fold<std::int64_t>(f.i64, args); break;
    case DType::U64: if (f.u64) return eval_fold<std::uint64_t>(f.u64, args); break;
    default: if (f.f64) return eval_fold<double>(f.f64, args); break;
  }
  throw InternalError(fmt::format("[{}] has no formula for {}", args.op.name, to_string(args.in[0].dtype())));
}

namespace {

// Moves the elements of one input, whatever their dtype.
Array eval_movement(const EvalArgs& args) {
  std::vector<Extents> shapes;
  for (auto& a : args.in) shapes.push_back(a.shape());
  Array out(args.dtype, args.shape);
  std::size_t width = size_of(args.dtype);
  Coords from;
  for_each_coords(args.shape, [&](const Coords& at, std::int64_t i) {
    args.op.source(from, at, shapes, args);
    std::copy_n(args.in[0].bytes() + std::size_t(offset_of(from, shapes[0])) * width, width, out.bytes() + std::size_t(i) * width);
  });
  return out;
}

// The inputs have the types of the node's, since a symbol in the attributes may meet one in a shape.
Array eval_body(const EvalArgs& args, const std::vector<Type>& types) {
  Graph scratch;
  Nodes in;
  Feeds feeds;
  for (auto& a : args.in) {
    std::string name = "#" + std::to_string(in.size());
    in.push_back(scratch.input(name, types[in.size()]));
    feeds.emplace(name, a);
  }
  Node body = args.op.body({in, args.attrs, args.op});
  return evaluate(std::span(&body, 1), feeds, args.symbols)[0];
}

}  // namespace

Array evaluate_op(const EvalArgs& args) {
  const OpDef& op = args.op;
  if (op.eval) return op.eval(args);
  switch (op.kind) {
    case Kind::Elementwise: return eval_elementwise(args);
    case Kind::Reduce: return evaluate_fold(args);
    case Kind::Movement: return eval_movement(args);
    case Kind::Composite: {
      std::vector<Type> types;
      for (auto& a : args.in) types.push_back(a.type());
      return eval_body(args, types);
    }
    default: throw InternalError(fmt::format("[{}] has no value", op.name));
  }
}

Array evaluate_node(Node node, std::span<const Array> in, const Bindings& symbols) {
  if (node.is(constant_op)) return node.attrs<ConstantAttrs>().value;
  Extents shape = evaluate(node.shape(), symbols);
  EvalArgs args{in, node.attrs(), node.dtype(), shape, symbols, node.op()};
  try {
    if (node.op().kind != Kind::Composite || node.op().eval) return evaluate_op(args);
    std::vector<Type> types;
    for (auto& input : node.inputs()) types.push_back(input.type());
    return eval_body(args, types);
  } catch (const UserError& e) {
    std::string_view what = e.what();
    std::string where = node.text() + (node.origins().empty() ? "" : ", " + node.origins().front());
    if (what.starts_with("[")) throw UserError(fmt::format("{} (in {} {})", what, node.op().name, where));  // its body failed
    throw UserError(fmt::format("[{}] {} (at {})", node.op().name, what, where));
  }
}

void bind_leaf(Node leaf, const Array& value, Bindings& symbols) {
  auto fail = [&](const std::string& why) {
    throw UserError(fmt::format("{} \"{}\": got {}, expected {}{}", leaf.op().name, leaf.name(), to_string(value.type()), to_string(leaf.type()), why));
  };
  if (value.dtype() != leaf.dtype() || value.shape().size() != leaf.shape().size()) fail("");
  bool progress = true;  // a dim such as 2*seq may wait for the axis that says what seq is
  std::vector<bool> done(value.shape().size());
  while (progress) {
    progress = false;
    for (std::size_t d = 0; d < done.size(); ++d)
      if (!done[d] && leaf.shape()[d].solve(value.shape()[d], symbols)) done[d] = progress = true;
  }
  for (std::size_t d = 0; d < done.size(); ++d) {
    const Dim& dim = leaf.shape()[d];
    std::vector<std::string> unbound;
    dim.collect_symbols(unbound);
    std::erase_if(unbound, [&](auto& s) { return symbols.contains(s); });
    if (!unbound.empty()) continue;  // another leaf may say
    if (dim.evaluate(symbols) != value.shape()[d])
      fail(fmt::format("; axis {} is {} = {}", d, dim.text(), dim.evaluate(symbols)));
  }
}

std::vector<Array> evaluate(std::span<const Node> nodes, const Feeds& feeds, Bindings symbols) {
  if (nodes.empty()) return {};
  Graph graph = nodes[0].graph();
  std::vector<bool> needed(std::size_t(graph.size()));
  for (auto& n : nodes) needed[std::size_t(n.id())] = true;
  std::vector<int> last_use(std::size_t(graph.size()), -1);
  for (int id = graph.size() - 1; id >= 0; --id)
    if (needed[std::size_t(id)])
      for (auto& in : graph.node(id).inputs()) {
        needed[std::size_t(in.id())] = true;
        last_use[std::size_t(in.id())] = std::max(last_use[std::size_t(in.id())], id);
      }
  for (auto& n : nodes) last_use[std::size_t(n.id())] = graph.size();
  auto fed = [&](Node leaf) -> const Array& {
    auto it = feeds.find(leaf.name());
    if (it == feeds.end()) throw UserError(fmt::format("{} {} is not fed", leaf.op().name, leaf.text()));
    return it->second;
  };
  auto is_leaf = [](Node n) { return n.is(input_op) || n.is(param_op); };
  for (int round = 0; round < 2; ++round)  // a second time, when every symbol that a leaf names is known
    for (int id = 0; id < graph.size(); ++id) {  // a leaf that no value needs may still say what a symbol is
      Node n = graph.node(id);
      if (is_leaf(n) && (needed[std::size_t(id)] || feeds.contains(n.name()))) bind_leaf(n, fed(n), symbols);
    }
  std::vector<Array> values(std::size_t(graph.size()));
  for (int id = 0; id < graph.size(); ++id) {
    if (!needed[std::size_t(id)]) continue;
    Node n = graph.node(id);
    std::vector<Array> in;
    for (auto& input : n.inputs()) in.push_back(values[std::size_t(input.id())]);
    values[std::size_t(id)] = is_leaf(n) ? fed(n) : evaluate_node(n, in, symbols);
    for (auto& input : n.inputs())
      if (last_use[std::size_t(input.id())] == id) values[std::size_t(input.id())] = Array();
  }
  std::vector<Array> out;
  for (auto& n : nodes) out.push_back(values[std::size_t(n.id())]);
  return out;
}

}  // namespace rlx
