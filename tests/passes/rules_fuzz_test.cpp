// Every rule, both sides evaluated by the interpreter: on random types and attributes, on values that hold NaN,
// infinities, -0, subnormals and the ends of the integers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "ops/eval.h"
#include "passes/passes.h"
#include "rlx/op_attrs.h"
#include "rlx/ops.h"

using namespace rlx;

namespace {

struct Random {
  std::mt19937_64 engine;
  std::int64_t below(std::int64_t n) { return std::int64_t(engine() % std::uint64_t(n)); }
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(engine) < p; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[std::size_t(below(std::int64_t(from.size())))];
  }
  DType dtype() {
    return pick(std::vector<DType>(kAllDTypes.begin(), kAllDTypes.end() - 1));
  }  // complex values have no arithmetic
  Shape shape() {
    Shape out;
    for (std::int64_t rank = below(4); rank > 0; --rank) out.push_back(chance(0.05) ? 0 : 1 + below(4));
    return out;
  }
};

double special(Random& r) {
  static const std::vector<double> kValues = {0.0,  -0.0, NAN,    INFINITY, -INFINITY, 1,     -1,   0.5,
                                              -0.5, 2,    1e-310, -1e-42,   6e-8,      65504, 3e38, -1.7e308};
  return r.pick(kValues);
}

Array random_array(Random& r, const Type& type, bool nice) {
  Array out(type.dtype, to_extents(type.shape));
  visit_dtype(type.dtype, [&]<class T>(T) {
    if constexpr (!std::same_as<T, c64>)
      for (auto& v : out.values<T>()) {
        double u = std::uniform_real_distribution<>(0.5, 3)(r.engine);
        if constexpr (std::same_as<T, bool>)
          v = r.chance(0.5);
        else if constexpr (std::integral<T>)
          v = nice ? T(1 + r.below(5)) : r.chance(0.2) ? std::numeric_limits<T>::min() : T(r.engine());
        else
          v = T(nice ? u : r.chance(0.4) ? special(r) : (r.chance(0.5) ? u : -100 * u));
      }
  });
  return out;
}

// Attributes for an op of a pattern, which says nothing of them.
Attrs random_attrs(Random& r, Node pattern, const Nodes& inputs) {
  const OpDef& op = pattern.op();
  Shape shape = inputs[0].is_number() ? Shape{} : inputs[0].shape();
  auto rank = std::int64_t(shape.size());
  if (&op == &ops::cast) return CastAttrs{r.dtype()};
  if (&op == &ops::reshape) {
    if (r.chance(0.3)) return ShapeAttrs{shape};
    Shape out{count(shape)};
    if (r.chance(0.5)) out.insert(out.begin() + r.below(2), 1);
    if (out[0] == Dim(6)) out = {2, 3};
    return ShapeAttrs{out};
  }
  if (&op == &ops::expand) {
    for (auto& d : shape)
      if (d == Dim(1) && r.chance(0.6)) d = 1 + r.below(3);
    if (r.chance(0.3)) shape.insert(shape.begin(), 2);
    return ShapeAttrs{shape};
  }
  if (&op == &ops::transpose) {
    Axes perm;
    for (int i = 0; i < rank; ++i) perm.push_back(i);
    if (r.chance(0.8)) std::shuffle(perm.begin(), perm.end(), r.engine);
    for (int& axis : perm)
      if (r.chance(0.3)) axis -= int(rank);
    return PermAttrs{perm};
  }
  if (&op == &ops::flip) {
    Axes axes;
    for (int i = 0; i < rank; ++i)
      if (r.chance(0.4)) axes.push_back(r.chance(0.3) ? i - int(rank) : i);
    return AxesAttrs{axes};
  }
  if (&op == &ops::concat) return AxisAttrs{int(r.below(std::max<std::int64_t>(1, rank)))};
  if (&op == &ops::slice) {
    SliceAttrs out;
    bool whole = r.chance(0.3);
    for (auto& d : shape) {
      std::int64_t n = d.number(), step = whole ? 1 : r.pick(std::vector<std::int64_t>{1, 1, 2, -1, -2});
      std::int64_t start = whole || n == 0 ? 0 : r.below(n), most = n == 0     ? 0
                                                                    : step > 0 ? (n - 1 - start) / step + 1
                                                                               : start / -step + 1;
      out.starts.push_back(start), out.steps.push_back(step), out.sizes.push_back(whole ? n : r.below(most + 1));
    }
    return out;
  }
  if (&op == &ops::pad) {
    PadAttrs out;
    bool nothing = r.chance(0.3);
    for (std::int64_t i = 0; i < rank; ++i)
      out.low.push_back(nothing ? 0 : r.below(3)), out.high.push_back(nothing ? 0 : r.below(3));
    out.value = double(r.below(2));
    return out;
  }
  return pattern.attrs();
}

// A pattern for real, with random types for its free nodes.
struct Instance {
  Random& r;
  Graph graph{};
  Type base = {r.dtype(), r.shape()};
  std::map<int, Node> made{};

  Node build(Node pattern) {
    if (pattern.is(constant_op)) return pattern.attrs<ConstantAttrs>().value.at(0);
    if (auto it = made.find(pattern.id()); it != made.end()) return it->second;
    if (pattern.is(any_op)) {
      Type type = base;
      if (r.chance(0.3) && !type.shape.empty()) type.shape[0] = 1;
      if (r.chance(0.2)) type.shape = {};
      if (r.chance(0.15)) type.dtype = r.dtype();
      if (pattern.name() == "condition") type.dtype = DType::Bool;
      return made[pattern.id()] = graph.input(pattern.name(), type);
    }
    Nodes inputs;
    for (auto& in : pattern.inputs()) inputs.push_back(build(in));
    Attrs attrs = random_attrs(r, pattern, inputs);
    // At times a number is a whole tensor of it.
    for (auto& in : inputs)
      if (in.is_number() && inputs.size() == 2 && r.chance(0.3))
        in = expand(graph.constant(in.number(), base.dtype), base.shape);
    if (&pattern.op() == &ops::where && inputs[0].is_number())
      inputs[0] = graph.constant(inputs[0].number(), DType::Bool);
    return made[pattern.id()] = graph.make(pattern.op(), inputs, attrs);
  }
};

bool equal_bits(const Array& a, const Array& b, std::string& where) {
  if (identical(a, b)) return true;
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  std::size_t width = size_of(a.dtype());
  for (std::int64_t i = 0; i < a.size(); ++i) {
    bool same_bits = std::equal(a.bytes() + std::size_t(i) * width, a.bytes() + std::size_t(i + 1) * width,
                                b.bytes() + std::size_t(i) * width);
    if (same_bits || (std::isnan(a.at(i)) && std::isnan(b.at(i)))) continue;
    where = "element " + std::to_string(i) + ": " + std::to_string(a.at(i)) + " and " + std::to_string(b.at(i));
    return false;
  }
  return true;
}
bool nearly(const Array& a, const Array& b) {
  double tolerance = a.dtype() == DType::BF16 ? 0.05 : a.dtype() == DType::F16 ? 0.01 : 1e-5;
  for (std::int64_t i = 0; i < a.size(); ++i)
    if (!(std::fabs(a.at(i) - b.at(i)) <= tolerance * (1 + std::fabs(a.at(i))))) return false;
  return true;
}

void fuzz(const Rule& rule, const RuleSet& alone) {
  SCOPED_TRACE(rule.name);
  // Other values with --gtest_shuffle --gtest_random_seed=N.
  Random r{std::mt19937_64(std::hash<std::string>{}(rule.name) +
                           std::uint64_t(testing::UnitTest::GetInstance()->random_seed()))};
  bool exact = !(rule.flags & kInexact);
  int fired = 0;
  for (int tries = 0; tries < 3000 && fired < 40; ++tries) {
    Instance instance{r};
    try {
      instance.graph.set_outputs({instance.build(rule.pattern)});
    } catch (const Error&) {
      continue;  // these types don't go together
    }
    Rewritten out = rewrite(instance.graph, alone, kInexact);
    if (out.fired.empty()) continue;
    ++fired;
    out.graph.verify();
    Feeds feeds;
    for (Node leaf : instance.graph.inputs()) feeds.emplace(leaf.name(), random_array(r, leaf.type(), !exact));
    Array before = evaluate(instance.graph.outputs()[0], feeds), after = evaluate(out.graph.outputs()[0], feeds);
    std::string where;
    if (exact)
      ASSERT_TRUE(equal_bits(before, after, where)) << where << "\n" << instance.graph.text() << out.graph.text();
    else
      ASSERT_TRUE(nearly(before, after)) << instance.graph.text() << out.graph.text();
  }
  EXPECT_GE(fired, 10) << "it hardly fires";
}

}  // namespace

TEST(Rules, BothSidesAreEqual) {
  std::set<std::string> names;
  for (auto& set : {algebra_rules(), movement_rules(), straight_through_rules()})
    for (auto& rule : set.rules) {
      EXPECT_TRUE(names.insert(rule.name).second) << "two rules are called " << rule.name;
      fuzz(rule, {set.patterns, {rule}});
    }
  EXPECT_GE(names.size(), 50u);
}
