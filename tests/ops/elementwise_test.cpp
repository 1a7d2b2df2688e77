// Elementwise ops and their composites: special values, integers, casts, the derivatives that are promised, and one
// test a message. Expected values are NumPy's and PyTorch's.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/values.h"
#include "rewrite/rewrite.h"

using namespace rlx;

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::int32_t kLeast = std::numeric_limits<std::int32_t>::min();

// ---------------------------------------------------------------------------------------------- values

TEST(Elementwise, IntegerDivisionTruncatesAndNeverTraps) {
  Graph g;
  Node a = g.constant(ints({8, -8, 7, -7, kLeast, 5, kLeast}, {7})),
       b = g.constant(ints({-3, 3, -2, 2, -1, 0, 0}, {7}));
  EXPECT_VALUES(evaluate(a / b, {}), (Extents{7}), -2, -2, -3, -3, double(kLeast), 0, 0);
  EXPECT_VALUES(evaluate(floor_div(a, b), {}), (Extents{7}), -3, -3, -4, -4, double(kLeast), 0, 0);
  EXPECT_VALUES(evaluate(mod(a, b), {}), (Extents{7}), -1, 1, -1, 1, 0, 0, 0);
  EXPECT_VALUES(evaluate(fmod(a, b), {}), (Extents{7}), 2, -2, 1, -1, 0, 0, 0);
  Node least = g.constant(longs({INT64_MIN}, {1})), minus = g.constant(longs({-1}, {1}));
  EXPECT_EQ(evaluate(least / minus, {}).values<std::int64_t>()[0], INT64_MIN);
  EXPECT_EQ(evaluate(mod(least, minus), {}).values<std::int64_t>()[0], 0);
  EXPECT_EQ(evaluate(abs(least), {}).values<std::int64_t>()[0], INT64_MIN);
}

TEST(Elementwise, FloatRemainders) {
  Graph g;
  Node a = g.constant(doubles({8, -8, 5.5, -5.5, 5}, {5})), b = g.constant(doubles({-3, 3, 2, 2, kInf}, {5}));
  EXPECT_VALUES(evaluate(mod(a, b), {}), (Extents{5}), -1, 1, 1.5, 0.5, 5);
  EXPECT_VALUES(evaluate(fmod(a, b), {}), (Extents{5}), 2, -2, 1.5, -1.5, 5);
}

TEST(Elementwise, MinimumAndMaximumKeepNan) {
  Graph g;
  Node a = g.constant(doubles({kNan, 7, kNan, -2.5}, {4})), b = g.constant(doubles({10, kNan, kNan, 9}, {4}));
  EXPECT_VALUES(evaluate(minimum(a, b), {}), (Extents{4}), kNan, kNan, kNan, -2.5);
  EXPECT_VALUES(evaluate(maximum(a, b), {}), (Extents{4}), kNan, kNan, kNan, 9);
  Node column = g.constant(doubles({kNan, 1, 20}, {3, 1})), ten = g.constant(doubles({10}, {1}));
  EXPECT_VALUES(evaluate(minimum(column, ten), {}), (Extents{3, 1}), kNan, 1, 10);
  EXPECT_VALUES(evaluate(minimum(ten, column), {}), (Extents{3, 1}), kNan, 1, 10);
}

TEST(Elementwise, ClampKeepsNanInValueAndBound) {
  Graph g;
  Node x = g.constant(floats({.5f, -3, 4.5f, 11, float(kNan)}, {5}));
  EXPECT_VALUES(evaluate(clamp(x, -1, 1), {}), (Extents{5}), .5, -1, 1, 1, kNan);
  EXPECT_VALUES(evaluate(clamp(x, 0, kNan), {}), (Extents{5}), kNan, kNan, kNan, kNan, kNan);
  EXPECT_VALUES(evaluate(clamp(x, kNan, 20), {}), (Extents{5}), kNan, kNan, kNan, kNan, kNan);
}

TEST(Elementwise, CastsSaturateAndTakeNanToZero) {
  Graph g;
  Node x = g.constant(floats({float(kNan), float(kInf), -float(kInf), 3e9f, -1.5f, 2.7f}, {6}));
  EXPECT_VALUES(evaluate(cast(x, DType::I32), {}), (Extents{6}), 0, 2147483647.0, -2147483648.0, 2147483647.0, -1, 2);
  EXPECT_VALUES(evaluate(cast(x, DType::U8), {}), (Extents{6}), 0, 255, 0, 255, 0, 2);
  EXPECT_VALUES(evaluate(cast(x, DType::Bool), {}), (Extents{6}), 1, 1, 1, 1, 1, 1);
  EXPECT_VALUES(evaluate(cast(g.constant(ints({300, -1, 128}, {3})), DType::I8), {}), (Extents{3}), 44, -1, -128);
  EXPECT_VALUES(evaluate(cast(x, DType::F16), {}), (Extents{6}), kNan, kInf, -kInf, kInf, -1.5, 2.69921875);
  EXPECT_VALUES(evaluate(cast(g.constant(floats({65519, 65520}, {2})), DType::F16), {}), (Extents{2}), 65504, kInf);
}

TEST(Elementwise, ComparisonsAreNumbersInArithmetic) {
  Graph g;
  Node x = g.constant(floats({1, -1, 0, 2, 3, -4, 5, 6, 7}, {9}));
  Array y = evaluate(x * (x >= 0), {});
  EXPECT_VALUES(y, (Extents{9}), 1, 0, 0, 2, 3, 0, 5, 6, 7);
  EXPECT_TRUE(std::signbit(y.at(1)));  // -1 · 0
}

TEST(Elementwise, NanSurvives) {
  Graph g;
  Node x = g.constant(floats({float(kNan)}, {1}));
  for (Node y : {sin(atan(x)), x - x, 0 * x, relu(x), sign(x), abs(x), exp(x), sqrt(x), where(x != x, x, 0), pow(x, 2),
                 silu(x), gelu(x)})
    EXPECT_TRUE(std::isnan(evaluate(y, {}).at(0))) << expression(y);
  EXPECT_VALUES(evaluate(isnan(x), {}), (Extents{1}), 1);
  EXPECT_VALUES(evaluate(x == x, {}), (Extents{1}), 0);
}

TEST(Elementwise, RoundingIsToEven) {
  Graph g;
  Node x = g.constant(floats({.5f, 1.5f, 2.5f, -.5f, -1.5f, -2.5f}, {6}));
  Array y = evaluate(round(x), {});
  EXPECT_VALUES(y, (Extents{6}), 0, 2, 2, 0, -2, -2);
  EXPECT_TRUE(std::signbit(y.at(3)));
}

TEST(Elementwise, ExtremesDoNotOverflow) {
  Graph g;
  Node x = g.constant(doubles({-1000, 1000}, {2}));
  EXPECT_VALUES(evaluate(sigmoid(x), {}), (Extents{2}), 0, 1);
  EXPECT_VALUES(evaluate(softplus(x), {}), (Extents{2}), 0, 1000);
  EXPECT_VALUES(evaluate(silu(x), {}), (Extents{2}), 0, 1000);
  EXPECT_VALUES(evaluate(gelu(x), {}), (Extents{2}), 0, 1000);
  EXPECT_VALUES(evaluate(gelu_tanh(x), {}), (Extents{2}), 0, 1000);
  EXPECT_VALUES(evaluate(logaddexp(x, -x), {}), (Extents{2}), 1000, 1000);
  for (auto kind : {Activation::Sigmoid, Activation::Tanh, Activation::Silu, Activation::Gelu, Activation::GeluTanh}) {
    Array d = evaluate(activation_backward(x, full_like(x, 1), kind), {});
    EXPECT_TRUE(std::isfinite(d.at(0)) && std::isfinite(d.at(1))) << int(kind);
  }
}

TEST(Elementwise, ShiftsPastTheWidth) {
  Graph g;
  Node x = g.constant(ints({-8, 8}, {2})), u = g.constant(ints({200}, {1}).cast(DType::U8));
  EXPECT_VALUES(evaluate(right_shift(x, g.constant(100, DType::I32)), {}), (Extents{2}), -1, 0);
  EXPECT_VALUES(evaluate(left_shift(x, g.constant(32, DType::I32)), {}), (Extents{2}), 0, 0);
  EXPECT_VALUES(evaluate(right_shift(x, g.constant(1, DType::I32)), {}), (Extents{2}), -4, 4);
  EXPECT_VALUES(evaluate(left_shift(u, g.constant(1, DType::U8)), {}), (Extents{1}), 144);
}

TEST(Elementwise, UnsignedSixtyFourBits) {
  Graph g;
  Node a = g.constant(Array(std::vector<std::uint64_t>{~0ull, 1ull << 63}, {2})),
       b = g.constant(Array(std::vector<std::uint64_t>{1, 3}, {2}));
  EXPECT_VALUES(evaluate(a > b, {}), (Extents{2}), 1, 1);
  EXPECT_EQ(evaluate(a / b, {}).values<std::uint64_t>()[1], 3074457345618258602ull);
  EXPECT_EQ(evaluate(maximum(a, b), {}).values<std::uint64_t>()[0], ~0ull);
}

// ---------------------------------------------------------------------------------------------- derivatives

struct Derivative {
  Activation kind;
  Node (*forward)(Node);
  std::vector<double> at, values;
};

const std::vector<double> kPoints{-3, -1, -.5, 0, .5, 1, 2.5}, kPositive{.25, .5, 1, 4};

// PyTorch's derivatives in f64.
const Derivative kDerivatives[] = {
    {Activation::Relu, relu, kPoints, {0, 0, 0, 0, 1, 1, 1}},
    {Activation::Sigmoid,
     sigmoid,
     kPoints,
     {0.04517665973091214, 0.19661193324148185, 0.2350037122015945, 0.25, 0.2350037122015945, 0.19661193324148185,
      0.07010371654510807}},
    {Activation::Tanh,
     tanh,
     kPoints,
     {0.009866037165440166, 0.41997434161402614, 0.7864477329659274, 1, 0.7864477329659274, 0.41997434161402614,
      0.02659222668316057}},
    {Activation::Silu,
     silu,
     kPoints,
     {-0.08810410601516962, 0.07232948812851325, 0.2600388126973482, 0.5, 0.7399611873026519, 0.9276705118714869,
      1.0994011113415267}},
    {Activation::Gelu,
     gelu,
     kPoints,
     {-0.01194564720418392, -0.08331547058768635, 0.13250487534383712, 0.5, 0.8674951246561629, 1.0833154705876864,
      1.037611085908145}},
    {Activation::GeluTanh,
     gelu_tanh,
     kPoints,
     {-0.011584166630969648, -0.08296408384578252, 0.13263009646535764, 0.5, 0.8673699035346424, 1.0829640838457826,
      1.037951576212666}},
    {Activation::Exp,
     exp,
     kPoints,
     {0.049787068367863944, 0.36787944117144233, 0.6065306597126334, 1, 1.6487212707001282, 2.718281828459045,
      12.182493960703473}},
    {Activation::Sin,
     sin,
     kPoints,
     {-0.9899924966004454, 0.5403023058681398, 0.8775825618903728, 1, 0.8775825618903728, 0.5403023058681398,
      -0.8011436155469337}},
    {Activation::Cos,
     cos,
     kPoints,
     {0.1411200080598672, 0.8414709848078965, 0.479425538604203, 0, -0.479425538604203, -0.8414709848078965,
      -0.5984721441039565}},
    {Activation::Tan,
     tan,
     kPoints,
     {1.0203195169424268, 3.42551882081476, 1.2984464104095248, 1, 1.2984464104095248, 3.42551882081476,
      1.5580423125717253}},
    {Activation::Atan, atan, kPoints, {.1, .5, .8, 1, .8, .5, 0.13793103448275862}},
    {Activation::Abs, abs, kPoints, {-1, -1, -1, 0, 1, 1, 1}},
    {Activation::Neg, neg, kPoints, {-1, -1, -1, -1, -1, -1, -1}},
    {Activation::Round, round, kPoints, {1, 1, 1, 1, 1, 1, 1}},
    {Activation::Floor, floor, kPoints, {1, 1, 1, 1, 1, 1, 1}},
    {Activation::Ceil, ceil, kPoints, {1, 1, 1, 1, 1, 1, 1}},
    {Activation::Log, log, kPositive, {4, 2, 1, .25}},
    {Activation::Sqrt, sqrt, kPositive, {1, 0.7071067811865475, .5, .25}},
    {Activation::Rsqrt, rsqrt, kPositive, {-4, -1.4142135623730947, -.5, -.0625}},
};

TEST(Derivatives, OfEveryActivation) {
  std::size_t kinds = enum_names(Activation()).size();
  EXPECT_EQ(std::size(kDerivatives), kinds);
  for (auto& row : kDerivatives)
    for (DType d : {DType::F64, DType::F32, DType::F16, DType::BF16}) {
      SCOPED_TRACE(std::string(enum_names(row.kind)[std::size_t(row.kind)]) + " " + std::string(to_string(d)));
      Graph g;
      Extents shape{std::int64_t(row.at.size())};
      Node x = g.input("x", d, to_shape(shape));
      Feeds feeds{{"x", doubles(row.at, shape).cast(d)}};
      double tolerance = 8 *
                         (d == DType::F64   ? 0x1p-52
                          : d == DType::F32 ? 0x1p-23
                          : d == DType::F16 ? 0x1p-10
                                            : 0x1p-7) *
                         4;
      expect_values(evaluate(activation_backward(x, full_like(x, 1), row.kind), feeds), shape, row.values, tolerance);
      Node rule = grad(row.forward(x), {x})[0];
      EXPECT_EQ(rule.dtype(), d);
      expect_values(evaluate(rule, feeds), shape, row.values, tolerance);
      g.set_outputs({rule});
      expect_values(evaluate(lower_backward_ops(g).outputs()[0], feeds), shape, row.values, tolerance);
    }
}

TEST(Derivatives, AtTheEdges) {
  Graph g;
  Node x = g.input("x", DType::F64, {4});
  Feeds feeds{{"x", doubles({-0.0, 0, -2, kNan}, {4})}};
  EXPECT_VALUES(gradient(relu(x), x, feeds), (Extents{4}), 0, 0, 0, 0);
  EXPECT_VALUES(gradient(abs(x), x, feeds), (Extents{4}), 0, 0, -1, kNan);
  EXPECT_VALUES(gradient(sqrt(x), x, feeds), (Extents{4}), 0, 0, 0, 0);
  EXPECT_VALUES(gradient(rsqrt(x), x, feeds), (Extents{4}), 0, 0, 0, 0);
  for (auto kind : {Activation::Sqrt, Activation::Rsqrt, Activation::Relu})
    EXPECT_VALUES(evaluate(activation_backward(x, full_like(x, 3), kind), feeds), (Extents{4}), 0, 0, 0, 0);
  EXPECT_VALUES(gradient(stop_gradient(x) * x, x, {{"x", doubles({1, 2, 3, 4}, {4})}}), (Extents{4}), 1, 2, 3, 4);
  EXPECT_VALUES(gradient(stop_gradient(x), x, feeds), (Extents{4}), 0, 0, 0, 0);
}

TEST(Derivatives, ConstantsOfABodyHaveTheDtypeTheyMeet) {
  for (DType d : {DType::F16, DType::BF16, DType::F64})
    for (auto& row : kDerivatives) {
      Graph g;
      Node x = g.input("x", d, {2});
      g.set_outputs({activation_backward(x, x, row.kind)});
      Graph body = lower_backward_ops(g);
      for (int id = 0; id < body.size(); ++id) {
        DType got = body.node(id).dtype();
        EXPECT_TRUE(got == d || got == DType::Bool) << body.node(id).text();
        EXPECT_FALSE(body.node(id).is(ops::activation_backward) || body.node(id).is(ops::relu_backward));
      }
    }
}

TEST(Derivatives, OfPowersAtZero) {
  Graph g;
  Node a = g.input("a", DType::F64, {}), b = g.input("b", DType::F64, {});
  Feeds ones{{"a", doubles({1}, {})}, {"b", doubles({1}, {})}};
  Node r = pow(a - b, b);
  EXPECT_VALUES(gradient(r, a, ones, doubles({123}, {})), (Extents{}), 123);
  EXPECT_VALUES(gradient(r, b, ones, doubles({123}, {})), (Extents{}), -123);
  Node x = g.input("x", DType::F64, {2}), n = g.input("n", DType::F64, {2});
  EXPECT_VALUES(gradient(pow(x, n), n, {{"x", doubles({0, 2}, {2})}, {"n", doubles({1, 1}, {2})}}), (Extents{2}), 0,
                2 * std::log(2.));
  auto at = [&](double v, double power) { return gradient(pow(a, power), a, {{"a", doubles({v}, {})}}).at(0); };
  EXPECT_EQ(at(-2, 2), -4);
  EXPECT_EQ(at(0, 2), 0);
  EXPECT_EQ(at(0, 1), 1);
  EXPECT_EQ(at(0, 0), 0);
  EXPECT_EQ(at(3, 0), 0);
  EXPECT_EQ(at(-3, 0), 0);
  EXPECT_EQ(at(0, .5), kInf);
  EXPECT_TRUE(std::isnan(at(-2, .5)));
}

TEST(Derivatives, AreSummedBackOverABroadcast) {
  Graph g;
  Node z = g.input("z", DType::F64, {});
  Feeds one{{"z", doubles({1}, {})}};
  Node f = sum(exp(z) - 0, {}) + sum(exp(z) - full(g, 0, {DType::F64, {1000}}), {0});
  EXPECT_NEAR(gradient(f, z, one).at(0), 1001 * std::exp(1.), 1e-9);
  Node h = sum(full(g, 1, {DType::F64, {2}}) * z * z - z, {0});
  EXPECT_EQ(gradient(h, z, one).at(0), 2);
  Node a = g.input("a", DType::F64, {3, 3});
  Node y = square(a + full(g, 1, {DType::F64, {3, 3, 3}}));
  EXPECT_VALUES(gradient(y, a, {{"a", doubles(std::vector<double>(9, 1), {3, 3})}}), (Extents{3, 3}), 12, 12, 12, 12,
                12, 12, 12, 12, 12);
  Node s = g.input("s", DType::F64, {Dim::symbol("n"), 1});
  Node t = s * g.input("t", DType::F64, {Dim::symbol("n"), 3});
  EXPECT_VALUES(
      gradient(sum(t, {0, 1}), s, {{"s", doubles({1, 2}, {2, 1})}, {"t", doubles({1, 2, 3, 4, 5, 6}, {2, 3})}}),
      (Extents{2, 1}), 6, 15);
}

TEST(Derivatives, ThroughACastAndMixedDtypes) {
  Graph g;
  Node x = g.input("x", DType::F16, {2}), y = g.input("y", DType::F32, {2});
  Node z = x * y;
  EXPECT_EQ(z.dtype(), DType::F32);
  Feeds feeds{{"x", floats({1, 2}, {2}).cast(DType::F16)}, {"y", floats({3, 4}, {2})}};
  Array dx = gradient(z, x, feeds);
  EXPECT_EQ(dx.dtype(), DType::F16);
  EXPECT_VALUES(dx, (Extents{2}), 3, 4);
  EXPECT_VALUES(gradient(cast(cast(x, DType::I32), DType::F16) * x, x, feeds), (Extents{2}), 1, 2);
}

// ---------------------------------------------------------------------------------------------- errors

TEST(Elementwise, Errors) {
  Graph g, other;
  Node x = g.input("x", DType::F32, {2, 3}), i = g.input("i", DType::I32, {2, 3}),
       b = g.input("b", DType::Bool, {2, 3}), c = g.input("c", DType::C64, {2, 3}),
       d = g.input("d", DType::F64, {2, 3});
  EXPECT_ERROR(exp(i), "[exp] needs a float, got i32 (in exp(%1 \"i\" i32[2,3]))");
  EXPECT_ERROR(isnan(i), "[isnan] needs a float, got i32");
  EXPECT_ERROR(neg(b), "[neg] needs a number, got bool");
  EXPECT_ERROR(logical_not(x), "[logical_not] needs bool, got f32");
  EXPECT_ERROR(bitwise_and(x, x), "[bitwise_and] needs an integer or bool, got f32");
  EXPECT_ERROR(where(x, x, x), "[where] the condition must be bool, got f32");
  EXPECT_ERROR(x + g.input("y", DType::F32, {4}),
               "[add] shapes do not broadcast: got [2,3] and [4], where 3 meets 4 (axis 1 of the result)");
  EXPECT_ERROR(c + d, "[add]");
  expect_error<Unsupported>([&] { c + c; }, "[add] complex values can only be moved, got c64");
  EXPECT_ERROR(i + 0.5, "[constant] 0.5 is not a value of i32");
  EXPECT_ERROR(x + other.input("x", DType::F32, {2, 3}), "[add] inputs are of different graphs");
  EXPECT_ERROR(x + none, "[add] input 1 is empty");
  EXPECT_ERROR(g.make(ops::add, {x}), "[add] takes 2 inputs, got 1");
  EXPECT_ERROR(add(1, 2), "[add] needs at least one node among its inputs");
  EXPECT_ERROR(cast(c, DType::Any), "[cast] needs a dtype to cast to, got any");
  EXPECT_ERROR(cast(c, DType::F32), "[cast] a cast of c64 to f32 would drop the imaginary part");
  EXPECT_ERROR(grad(i, {x}), "grad: needs a float to differentiate, got %1 \"i\" i32[2,3]");
  EXPECT_ERROR(grad(x, {i}), "grad: can only differentiate by a float of the same graph, got %1 \"i\"");
  EXPECT_ERROR(grad(x, {x}, i), "grad: the cotangent is %1 \"i\" i32[2,3], expected f32[2,3]");
  EXPECT_ERROR(g.make(ops::cast, {x}, AxisAttrs{1}), "[cast] got the attributes of another op");
}
