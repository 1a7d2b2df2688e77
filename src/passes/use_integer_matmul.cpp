// A matmul of fake-quantised operands on their integer codes:
//
//     matmul(ca / s, T(cw · γ))  ->  f32(matmul(i8(ca), T(i8(cw)), i32)) · γ / s
//
// where ca = clamp(round(x · s), -128, 127) with one s a row, s = c / max(max |x|, ε), and cw = clamp(round(w / γ), -1,
// 1) with γ = max(mean |w|, ε) of the tensor or of each output column, or cw comes from i8; T moves elements. The sum
// is exact in i32; γ comes first, then s, which divides as in BitNet's y = (xq·Wq) γ / s. Where x or w holds a NaN or
// an infinity, so does s or γ, and the result is NaN on both sides.
#include <fmt/format.h>

#include <algorithm>

#include "ir/graph_data.h"
#include "ops/rules.h"
#include "passes/passes.h"
#include "rlx/op_attrs.h"

namespace rlx {
namespace {

struct Operands {
  Node codes_a, s;      // the left operand is codes_a / s
  Node codes_w, gamma;  // the right one moves(codes_w · gamma); gamma may be none
  Nodes moves;          // from the operand down
};
struct Misfit {
  std::string why;
};

// x where the node is x moved into [low, high], whole numbers, and rounded; else none.
Node rounded_within(Node n, double low, double high) {
  Node x = none, lo = none, hi = none;
  if (n.is(ops::clamp)) {
    x = n.input(0), lo = n.input(1), hi = n.input(2);
  } else if (n.is(ops::minimum) && n.input(0).is(ops::maximum)) {
    x = n.input(0).input(0), lo = n.input(0).input(1), hi = n.input(1);
  }
  if (!x || !x.is(ops::round)) return none;
  auto least = uniform_value(lo), most = uniform_value(hi);
  return least && most && *least >= low && *most <= high ? x.input(0) : none;
}

Node skip(Node n, const OpDef& op) {
  while (n.is(op)) n = n.input(0);
  return n;
}
Node origin_of(Node n) {
  while (n.is(ops::transpose) || n.is(ops::reshape) || n.is(ops::cast) || n.is(ops::expand)) n = n.input(0);
  return n;
}
// The other input of maximum(statistic, number), else none.
Node above_floor(Node n) {
  if (!n.is(ops::maximum)) return none;
  if (uniform_value(n.input(1))) return n.input(0);
  return uniform_value(n.input(0)) ? n.input(1) : none;
}

// Whether s is c / max(max |x|, ε) over the last axis of x, so that it is NaN or 0 where x has a value that is not
// finite.
bool is_row_scale(Node s, Node x) {
  if (!s.is(ops::div) || !uniform_value(s.input(0))) return false;
  Node most = above_floor(s.input(1));
  if (!most || !most.is(ops::max) || !most.input(0).is(ops::abs) || !same(most.input(0).input(0), x)) return false;
  return normalize_axes(most.attrs<ReduceAttrs>().axes, x.rank()) == Axes{x.rank() - 1};
}
// Whether gamma is max(mean |w|, ε) of elements of the same leaf.
bool is_mean_scale(Node gamma, Node w) {
  Node statistic = above_floor(gamma);
  if (!statistic) return false;
  statistic = skip(statistic, ops::cast);
  if (!statistic.is(ops::mean) || !statistic.input(0).is(ops::abs)) return false;
  return same(origin_of(statistic.input(0).input(0)), origin_of(w));
}

void find_activation(Node a, Operands& out) {
  if (!a.is(ops::div)) throw Misfit{fmt::format("its left operand is {}, not codes / scale", a.op().name)};
  out.codes_a = a.input(0), out.s = a.input(1);
  Node scaled = rounded_within(out.codes_a, -128, 127);
  if (!scaled) throw Misfit{"the codes of its left operand are not clamp(round(…), -128, 127)"};
  bool right = scaled.is(ops::mul) && (same(scaled.input(0), out.s) || same(scaled.input(1), out.s));
  Node x = !right ? none : scaled.input(same(scaled.input(1), out.s) ? 0 : 1);
  if (!right || !is_row_scale(out.s, x))
    throw Misfit{"the scale of its left operand is not c / max(max |x|, epsilon) of each row"};
}

void find_weight(Node b, Operands& out) {
  while (b.is(ops::transpose) || b.is(ops::reshape) || b.is(ops::expand)) out.moves.push_back(b), b = b.input(0);
  auto from_i8 = [](Node n) { return n.is(ops::cast) && n.input(0).dtype() == DType::I8; };
  if (from_i8(b)) {
    out.codes_w = b;
    return;
  }
  if (!b.is(ops::mul)) throw Misfit{fmt::format("its right operand is made by {}, not codes · scale", b.op().name)};
  for (int i : {0, 1}) {
    Node codes = b.input(i), scale = b.input(1 - i), ratio = rounded_within(codes, -1, 1);
    bool ternary = ratio && ratio.is(ops::div) && same(ratio.input(1), scale) && is_mean_scale(scale, ratio.input(0));
    if (!ternary && !from_i8(codes)) continue;
    out.codes_w = codes, out.gamma = scale;
    return;
  }
  throw Misfit{
      "its right operand is not clamp(round(w / scale), -1, 1) · scale with the scale max(mean |w|, epsilon), nor from "
      "i8"};
}

// The weight's scale in the layout of the result: [], [..., 1, N], or [..., N] where the left operand is a vector.
Node moved_gamma(const Operands& o, Node a, Node b) {
  if (count(o.gamma.shape()) == Dim(1)) return reshape(o.gamma, {});
  Node gamma = o.gamma;
  if (gamma.rank() > o.codes_w.rank()) throw Misfit{"the scale of its right operand has more axes than the codes"};
  Shape shape = gamma.shape();
  shape.insert(shape.begin(), std::size_t(o.codes_w.rank() - gamma.rank()), Dim(1));
  gamma = reshape(gamma, shape);
  for (auto it = o.moves.rbegin(); it != o.moves.rend(); ++it) {
    if (!it->is(ops::transpose))
      throw Misfit{fmt::format("a scale for each column cannot be followed through {}", it->op().name)};
    gamma = transpose(gamma, it->attrs<PermAttrs>().perm);
  }
  if (b.rank() < 2 || !(gamma.dim(-2) == Dim(1)))
    throw Misfit{"the scale of its right operand differs along the contracted axis"};
  if (a.rank() > 1) return gamma;
  shape = gamma.shape();
  shape.erase(shape.end() - 2);
  return reshape(gamma, shape);
}

// The activation's scale in the layout of the result.
Node moved_s(Node s, Node a, Node b) {
  if (s.rank() == 0) return s;
  if (!(s.dim(-1) == Dim(1))) throw Misfit{"the scale of its left operand differs along the contracted axis"};
  if (a.rank() == 1) return reshape(s, {});
  if (b.rank() > 1) return s;
  Shape shape = s.shape();
  shape.pop_back();
  return reshape(s, shape);
}

Node integer_form(Node node) {
  Node a = node.input(0), b = node.input(1);
  if (node.dtype() != DType::F32) throw Misfit{fmt::format("it gives {}, not f32", to_string(node.dtype()))};
  Operands o;
  find_activation(a, o);
  find_weight(b, o);
  Dim k = a.dim(-1);
  std::int64_t largest = 128 * (o.codes_w.is(ops::cast) ? 128 : 1);
  if (!k.is_number()) throw Misfit{fmt::format("the contracted size {} is symbolic", k.text())};
  if (k.number() < 1 || k.number() > std::numeric_limits<std::int32_t>::max() / largest)
    throw Misfit{fmt::format("a sum of {} products may not fit i32", k.number())};
  Node gamma = o.gamma ? moved_gamma(o, a, b) : none;
  Node s = moved_s(o.s, a, b);
  Node weight = o.codes_w.is(ops::cast) ? o.codes_w.input(0) : cast(o.codes_w, DType::I8);
  for (auto it = o.moves.rbegin(); it != o.moves.rend(); ++it) weight = make(it->op(), {weight}, it->attrs());
  Node product = cast(matmul(cast(o.codes_a, DType::I8), weight, DType::I32), DType::F32);
  return (gamma ? product * gamma : product) / s;
}

constexpr const char* kRule = "use_integer_matmul";

}  // namespace

Rewritten use_integer_matmul(const Graph& graph) {
  Fired fired;
  Rebuilt out = rebuild(graph, [&](Node copy, Node) -> Replaced {
    if (!copy.is(ops::matmul)) return {};
    Graph target = copy.graph();
    target.set_origin(origin_by(copy, kRule));
    Node made = none;
    try {
      made = integer_form(copy);
      if (made.type() != copy.type()) made = none;
    } catch (const Misfit&) {
    }
    target.set_origin("");
    if (made) ++fired[kRule];
    return {made, kRule};
  });
  return fired.empty() ? Rewritten{graph, {}} : Rewritten{out.graph, fired};
}

std::string explain_integer_matmul(Node node) {
  std::string head = fmt::format("{} at {} {}", kRule, node.op().name, node.text());
  if (!node.is(ops::matmul)) return head + " does not fire: it is no matmul";
  try {
    Node made = integer_form(node);
    return made.type() == node.type() ? head + " fires"
                                      : fmt::format("{} does not fire: it would give {}", head, to_string(made.type()));
  } catch (const Misfit& misfit) {
    return fmt::format("{} does not fire: {}", head, misfit.why);
  }
}

}  // namespace rlx
