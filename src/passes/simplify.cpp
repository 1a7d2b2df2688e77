// Algebra. A rule without a flag holds for every value of every dtype: bit for bit, but for which NaN a NaN is. Tests
// evaluate both sides of each on random and special values.
#include "ir/graph_data.h"
#include "passes/passes.h"
#include "rlx/op_attrs.h"
#include "rlx/ops.h"

namespace rlx {
namespace {

// Whether every value of `a` is one of `b`.
bool holds_all_of(DType b, DType a) {
  if (a == b) return true;
  if (a == DType::Bool) return is_int(b) || is_float(b);
  if (is_int(a) && is_int(b)) {
    int more = int(size_of(b)) - int(size_of(a));
    return is_signed_int(a) ? is_signed_int(b) && more > 0 : more > 0;
  }
  auto digits = [](DType d) { return d == DType::F64 ? 53 : d == DType::F32 ? 24 : d == DType::F16 ? 11 : 8; };
  if (is_int(a)) return is_float(b) && int(size_of(a)) * 8 - is_signed_int(a) <= digits(b) && b != DType::F16;
  return is_float(a) && (b == DType::F64 || (b == DType::F32 && a != DType::F64));
}

// Whether a cast by way of `by` is the direct one. Integers wrap into narrower ones, floats saturate.
bool is_transparent(DType from, DType by, DType to) {
  bool saturates = is_int(from) && is_float(by) && is_int(to) && !holds_all_of(to, from);
  return holds_all_of(by, from) && !saturates;
}

RuleSet arithmetic() {
  Graph p(Graph::Mode::Pattern);
  Node x = p.any("x"), y = p.any("y");
  Node power = pow(x, 2), zero = x * 0;
  auto is_integer = [=](const Match& m) { return is_int(m[x].dtype()); };
  auto both_floats = [=](const Match& m) { return is_float(m[x].dtype()) && is_float(m[y].dtype()); };
  // An integer's negation wraps in its own dtype, before it is promoted.
  auto negates_alike = [=](const Match& m) { return is_float(m[y].dtype()) || m[x].dtype() == m[y].dtype(); };
  return {{p},
          {
              {"mul_one", x * 1, x},
              {"div_one", x / 1, x},
              {"sub_zero", x - 0, x},
              {"add_minus_zero", x + -0.0, x},
              {"add_zero_int", x + 0, x, kExact, is_integer},
              {"mul_zero_int", zero, 0.0, kExact, [=](const Match& m) { return is_int(m[zero].dtype()); }},
              {"sub_self_int", x - x, 0.0, kExact, is_integer},
              {"mul_minus_one", x * -1, -x},
              {"div_minus_one", x / -1, -x},
              {"double_neg", -(-x), x},
              {"sub_neg", x - -y, x + y, kExact, negates_alike},
              {"add_neg", x + -y, x - y, kExact, negates_alike},
              {"mul_negs", -x * -y, x * y, kExact,
               [=](const Match& m) { return both_floats(m) || m[x].dtype() == m[y].dtype(); }},
              {"div_negs", -x / -y, x / y, kExact, both_floats},
              {"pow_zero", pow(x, 0), 1.0},
              {"pow_one", pow(x, 1), x},
              {"pow_two", power, x * x, kExact,
               [=](const Match& m) { return m[power].dtype() != DType::F64; }},  // pow rounds otherwise there
              {"add_zero", x + 0, x, kInexact},                                  // -0 + 0 is 0
              {"mul_zero", x * 0, 0.0, kInexact},
              {"sub_self", x - x, 0.0, kInexact},
              {"div_self", x / x, 1.0, kInexact, [=](const Match& m) { return is_float(m[x].dtype()); }},
              {"exp_log", exp(log(x)), x, kInexact},
              {"log_exp", log(exp(x)), x, kInexact},
              {"merge_mul_div", (x * y) / y, x, kInexact, both_floats},
          }};
}

RuleSet selection() {
  Graph p(Graph::Mode::Pattern);
  Node x = p.any("x"), y = p.any("y"), c = p.any("condition");
  return {{p},
          {
              {"max_self", maximum(x, x), x},
              {"min_self", minimum(x, x), x},
              {"relu_relu", relu(relu(x)), relu(x)},
              {"abs_abs", abs(abs(x)), abs(x)},
              {"abs_neg", abs(-x), abs(x), kExact, [=](const Match& m) { return !is_unsigned_int(m[x].dtype()); }},
              {"round_round", round(round(x)), round(x)},
              {"floor_floor", floor(floor(x)), floor(x)},
              {"ceil_ceil", ceil(ceil(x)), ceil(x)},
              {"trunc_trunc", trunc(trunc(x)), trunc(x)},
              {"sign_sign", sign(sign(x)), sign(x)},
              {"stop_gradient_twice", stop_gradient(stop_gradient(x)), stop_gradient(x)},
              {"where_same", where(c, x, x), x},
              {"where_true", where(1, x, y), x},
              {"where_false", where(0, x, y), y},
              {"where_not", where(logical_not(c), x, y), where(c, y, x)},
              {"double_not", logical_not(logical_not(x)), x},
              {"not_equal", logical_not(x == y), x != y},
              {"not_not_equal", logical_not(x != y), x == y},
              {"and_self", x & x, x},
              {"or_self", x | x, x},
              {"and_true", x & 1, x},
              {"and_false", x & 0, 0.0},
              {"or_true", x | 1, 1.0},
              {"or_false", x | 0, x},
          }};
}

RuleSet casts() {
  Graph p(Graph::Mode::Pattern);
  Node x = p.any("x");
  Node inner = cast(x, DType::Any), outer = cast(inner, DType::Any);
  return {{p},
          {
              {"noop_cast", inner, x},  // the driver lets it through only where nothing changes
              {"merge_casts", outer, [=](const Match& m) { return cast(m[x], m[outer].dtype()); }, kExact,
               [=](const Match& m) { return is_transparent(m[x].dtype(), m[inner].dtype(), m[outer].dtype()); }},
          }};
}

}  // namespace

RuleSet algebra_rules() { return arithmetic() + selection() + casts(); }

Rewritten simplify(const Graph& graph) {
  static const RuleSet rules = algebra_rules() + movement_rules();
  return rewrite(graph, rules);
}

}  // namespace rlx
