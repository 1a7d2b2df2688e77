// Symbolic dims and shapes.
#include <gtest/gtest.h>

#include "message_of.h"
#include "rlx/array.h"

namespace rlx {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max(), kMin = std::numeric_limits<std::int64_t>::min();

TEST(Dim, EqualExpressionsAreEqual) {
  auto b = Dim::symbol("batch"), s = Dim::symbol("seq");
  EXPECT_EQ((s + 1) * (s - 1), s * s - 1);
  EXPECT_EQ(b + s - b, s);
  EXPECT_EQ(2 * s * b - 1, Dim::parse("2*seq*batch - 1"));
  EXPECT_NE(b, s);
  EXPECT_EQ(s - s, Dim(0));
  EXPECT_TRUE((s - s).is_number());
  EXPECT_EQ(floor_div(4 * s + 6, 2), 2 * s + 3);
  EXPECT_EQ(floor_div(3 * s + 5, 2), s + 2 + floor_div(s + 1, 2));
  EXPECT_EQ(floor_div(b * s * 64, b * s), Dim(64));
  EXPECT_EQ(floor_div(b * s + b, s + 1), b);
  EXPECT_EQ(ceil_div(s, 2), s - floor_div(s, 2));
  EXPECT_EQ(floor_div(s, -2), floor_div(-s, 2));
  EXPECT_EQ(min(b, s), min(s, b));
  EXPECT_EQ(max(s + 1, s), s + 1);
  EXPECT_EQ(min(s + 1, s), s);
  EXPECT_EQ(max(s, s), s);
}

TEST(Dim, NumbersRoundDown) {
  EXPECT_EQ(floor_div(-7, 2), Dim(-4));
  EXPECT_EQ(floor_div(7, -2), Dim(-4));
  EXPECT_EQ(floor_div(-7, -2), Dim(3));
  EXPECT_EQ(ceil_div(7, 2), Dim(4));
  EXPECT_EQ(ceil_div(-7, 2), Dim(-3));
  EXPECT_THROW(floor_div(1, 0), UserError);
  EXPECT_THROW(floor_div(Dim::symbol("s"), 0), UserError);
}

TEST(Dim, TextRoundTrips) {
  auto check = [](const char* text, const char* canonical) {
    EXPECT_EQ(Dim::parse(text).text(), canonical);
    EXPECT_EQ(Dim::parse(canonical).text(), canonical);
    EXPECT_EQ(Dim::parse(canonical), Dim::parse(text));
  };
  check("batch", "batch");
  check("1+seq", "seq + 1");
  check("2*seq*batch - 1", "2*batch*seq - 1");
  check("-(a - b)", "-a + b");
  check("a*a*b + b*a*2 + 3", "a*a*b + 2*a*b + 3");
  check("floor(seq, 2)", "floor(seq, 2)");
  check("floor(-a, n)", "floor(-a, n)");
  check("max(b, a)*min( a,3 )", "max(a, b)*min(3, a)");
  check("floor(max(a, floor(b, c)), d)", "floor(max(a, floor(b, c)), d)");
  check("-9223372036854775808", "-9223372036854775808");
  check("a*-9223372036854775808", "-9223372036854775808*a");
  check("b - 9223372036854775807 - 1", "b + -9223372036854775808");
  check("floor", "floor");  // a symbol like any other where no bracket follows
  check("x_1.y", "x_1.y");
}

TEST(Dim, BadTextIsRefused) {
  EXPECT_EQ(message_of([] { Dim::parse("seq + "); }),
            "dim 'seq + ': got the end at character 7, expected a number, a symbol or '('");
  EXPECT_EQ(message_of([] { Dim::parse("2 $ 3"); }),
            "dim '2 $ 3': got '$' at character 3, expected the end or an operator");
  for (auto text :
       {"", "2x", "a b", "(a", "f(a, b)", "floor(a)", "min(a, b, c)", "9223372036854775808", "a ** b", "floor(a, 0)"})
    EXPECT_THROW(Dim::parse(text), UserError) << text;
  EXPECT_THROW(Dim::parse(std::string(100000, '(')), UserError);
  EXPECT_THROW(Dim::parse(std::string(50000, '-') + "a"), UserError);
  std::string product = "(a+b+c+d+e)";
  for (int i = 0; i < 10; ++i) product += "*(a+b+c+d+e)";
  EXPECT_THROW(Dim::parse(product), UserError);
  for (auto name : {"", "1a", "a-b", "a b", "ü"}) EXPECT_THROW(Dim::symbol(name), UserError) << name;
}

TEST(Dim, Evaluates) {
  Bindings at{{"a", 7}, {"b", 3}, {"z", 0}};
  EXPECT_EQ(Dim::parse("2*a*b - 1").evaluate(at), 41);
  EXPECT_EQ(Dim::parse("floor(a, b) + floor(-a, b)").evaluate(at), 2 - 3);
  EXPECT_EQ(Dim::parse("min(a, b) + 10*max(a, b)").evaluate(at), 73);
  EXPECT_EQ(Dim(5).evaluate({}), 5);
  EXPECT_EQ(message_of([&] { Dim::parse("a + missing").evaluate(at); }), "dim: the symbol 'missing' has no value");
  EXPECT_THROW(Dim::parse("floor(a, z)").evaluate(at), UserError);
  EXPECT_EQ(message_of([] { Dim::symbol("a").number(); }), "dim: got 'a', expected a number");
}

TEST(Dim, OverflowIsAnError) {
  auto a = Dim::symbol("a");
  EXPECT_THROW((a * a).evaluate({{"a", std::int64_t(1) << 32}}), UserError);
  EXPECT_THROW((a + 1).evaluate({{"a", kMax}}), UserError);
  EXPECT_THROW(Dim(kMax) + 1, UserError);
  EXPECT_THROW(Dim(kMax) * 2, UserError);
  EXPECT_THROW(-Dim(kMin), UserError);
  EXPECT_THROW(floor_div(kMin, -1), UserError);
  EXPECT_THROW((a * kMax) * kMax, UserError);
  EXPECT_THROW(a + kMax + a + 1, UserError);
}

TEST(Dim, Solves) {
  Bindings b{{"h", 8}};
  EXPECT_TRUE(Dim::parse("2*seq*h - 1").solve(47, b));
  EXPECT_EQ(b.at("seq"), 3);
  Bindings none;
  EXPECT_FALSE(Dim::parse("2*x").solve(3, none));
  EXPECT_FALSE(Dim::parse("x*x").solve(4, none));
  EXPECT_FALSE(Dim::parse("x + y").solve(4, none));
  EXPECT_FALSE(Dim::parse("floor(x, 2)").solve(4, none));
  EXPECT_FALSE(Dim::parse("x + 5").solve(4, none));  // no size is negative
  EXPECT_FALSE(Dim(4).solve(4, none));
  EXPECT_TRUE(none.empty());
  EXPECT_TRUE(Dim::parse("5 - x").solve(2, none));
  EXPECT_EQ(none.at("x"), 3);
}

TEST(Dim, CollectsSymbolsOnce) {
  std::vector<std::string> names;
  Dim::parse("a*b + floor(c, a) + min(d, b)").collect_symbols(names);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "c", "d"}));
}

TEST(Shape, Counts) {
  EXPECT_EQ(count(Shape{}), Dim(1));
  EXPECT_EQ(count(Shape{2, Dim::symbol("s"), 3}), 6 * Dim::symbol("s"));
  EXPECT_EQ(count(Shape{Dim::symbol("s"), 0}), Dim(0));
  EXPECT_EQ(count(Extents{2, 3, 4}), 24);
  EXPECT_EQ(count(Extents{kMax, kMax, 0}), 0);
  EXPECT_THROW(count(Extents{kMax, 2}), UserError);
  EXPECT_THROW(count(Extents{-1, 2}), UserError);
}

TEST(Shape, Broadcasts) {
  auto s = Dim::symbol("s");
  EXPECT_EQ(broadcast({2, 1}, {3}), (Shape{2, 3}));
  EXPECT_EQ(broadcast({s, 1, 4}, {1, 5, 1}), (Shape{s, 5, 4}));
  EXPECT_EQ(broadcast({s}, {s}), (Shape{s}));
  EXPECT_EQ(broadcast({0}, {1}), (Shape{0}));
  EXPECT_EQ(broadcast({}, {}), (Shape{}));
  EXPECT_EQ(message_of([] {
              broadcast({2, 3}, {2, 4});
            }),
            "shapes do not broadcast: got [2,3] and [2,4], where 3 meets 4 (axis 1 of the result)");
  EXPECT_THROW(broadcast({s}, {3}), UserError);
  EXPECT_THROW(broadcast({0}, {2}), UserError);
}

TEST(Shape, NormalizesAxes) {
  EXPECT_EQ(normalize_axis(-1, 3), 2);
  EXPECT_EQ(normalize_axes({-1, 0}, 3), (Axes{0, 2}));
  EXPECT_EQ(message_of([] { normalize_axis(3, 3); }), "axis 3: expected one in [-3, 3)");
  EXPECT_EQ(message_of([] { normalize_axis(0, 0); }), "axis 0: a scalar has no axes");
  EXPECT_EQ(message_of([] { normalize_axes({1, -2}, 3); }), "axis 1 stands twice in the list of axes");
}

TEST(Shape, ConvertsAndPrints) {
  auto s = Dim::symbol("s");
  EXPECT_FALSE(is_static({2, s}));
  EXPECT_TRUE(is_static({}));
  EXPECT_EQ(evaluate({2, s - 1}, {{"s", 4}}), (Extents{2, 3}));
  EXPECT_THROW(evaluate({s - 5}, {{"s", 4}}), UserError);
  EXPECT_THROW(to_extents({s}), UserError);
  EXPECT_EQ(to_extents(to_shape({2, 3})), (Extents{2, 3}));
  EXPECT_EQ(to_string(Shape{2, s + 1}), "[2,s + 1]");
  EXPECT_EQ(to_string(Extents{}), "[]");
}

TEST(Type, TextRoundTrips) {
  for (auto text : {"f32[]", "bf16[2,3]", "i64[batch,floor(seq, 2) + 1,max(a, b)]", "bool[0]", "any[2]"})
    EXPECT_EQ(to_string(type_from_string(text)), text);
  EXPECT_EQ(type_from_string("f32[ 2 , s]"), (Type{DType::F32, {2, Dim::symbol("s")}}));
  for (auto text : {"", "f32", "f32[2", "f33[2]", "f32[2,]", "f32[,2]", "f32[-1]", "[2]", "f32[min(a,b]"})
    EXPECT_THROW(type_from_string(text), UserError) << text;
}

}  // namespace
}  // namespace rlx
