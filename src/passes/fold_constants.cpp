#include <algorithm>
#include <cmath>

#include "ops/eval.h"
#include "passes/passes.h"
#include "rlx/op_attrs.h"
#include "rlx/ops.h"

namespace rlx {
namespace {

// A constant, or one that is expanded, or positions: folding these would only make them larger.
bool is_known(Node node) {
  return node.is(constant_op) || node.is(ops::iota) || (node.is(ops::expand) && node.input(0).is(constant_op));
}

// Bytes of a value, or more than any limit where its shape is symbolic.
double bytes_of(Node node) {
  if (!is_static(node.shape())) return HUGE_VAL;
  double n = double(size_of(node.dtype()));
  for (auto& dim : node.shape()) n *= double(dim.number());
  return n;
}

Array value_of(Node node) {
  if (node.is(constant_op)) return node.attrs<ConstantAttrs>().value;
  if (node.is(ops::iota)) return evaluate_node(node, {}, {});
  Array in = node.input(0).attrs<ConstantAttrs>().value;
  return evaluate_node(node, std::span(&in, 1), {});
}

// Multiply-adds of a contraction: for [m,k]·[k,n] the square root of mn·mk·kn.
double work_of(Node node) {
  if (node.op().kind != Kind::Contract && node.op().kind != Kind::Pool) return 0;
  double product = bytes_of(node);
  for (auto& in : node.inputs()) product *= bytes_of(in);
  return std::sqrt(product);
}

// Of an elementwise op on values that all their elements share: one element, expanded.
Node fold_uniform(Node node) {
  if (node.op().kind != Kind::Elementwise || !is_known(node.input(0))) return none;
  std::vector<Array> in;
  for (auto& input : node.inputs()) {
    auto value = uniform_value(input);
    if (!value) return none;
    Node from = input;
    while (!from.is(constant_op)) from = from.input(0);
    Array all = from.attrs<ConstantAttrs>().value;
    in.push_back(Array::borrow(all.bytes(), all.dtype(), {}));
  }
  Array out = evaluate_op({in, node.attrs(), node.dtype(), {}, {}, node.op()}).clone();
  Graph graph = node.graph();
  Node folded = graph.constant(std::move(out));
  return node.rank() == 0 ? folded : expand(folded, node.shape());
}

Node fold(Node node, const FoldOptions& options) {
  if (node.is(ops::size)) {
    const Dim& dim = node.input(0).dim(node.attrs<AxisAttrs>().axis);
    return dim.is_number() ? node.graph().constant(Array(std::vector<std::int64_t>{dim.number()}, {})) : none;
  }
  if (node.inputs().empty() || is_known(node) || node.op().kind == Kind::Random) return none;
  if (!std::ranges::all_of(node.inputs(), is_known)) return none;
  try {
    if (Node uniform = fold_uniform(node)) return uniform;
    double limit = double(options.max_bytes);
    for (auto& in : node.inputs()) limit = std::max(limit, in.is(constant_op) ? bytes_of(in) : 0);
    auto fits = [&](Node n) { return bytes_of(n) <= limit; };
    if (!fits(node) || !std::ranges::all_of(node.inputs(), fits) || work_of(node) > options.max_work) return none;
    std::vector<Array> in;
    for (auto& input : node.inputs()) in.push_back(value_of(input));
    Graph graph = node.graph();
    return graph.constant(evaluate_node(node, in, {}));
  } catch (const Error&) {
    return none;  // the run will say what is wrong, if it comes to that
  }
}

}  // namespace

Rewritten fold_constants(const Graph& graph, FoldOptions options) {
  Fired fired;
  Rebuilt out = rebuild(graph, [&](Node copy, Node) -> Replaced {
    Node folded = fold(copy, options);
    if (!folded || same(folded, copy)) return {};
    ++fired["fold_constants"];
    return {folded, "fold_constants"};
  });
  return fired.empty() ? Rewritten{graph, {}} : Rewritten{out.graph, fired};
}

}  // namespace rlx
