// Reductions and scans: values that NumPy gives, empty axes, NaN, ties, and one test a message.
#include <gtest/gtest.h>

#include "ops/values.h"

using namespace rlx;

TEST(Reduce, MeanOverNumbersAndSymbols) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 3}), s = g.input("s", DType::F16, {Dim::symbol("n"), 2});
  Feeds feeds{{"x", floats({1, 2, 3, 4, 5, 9}, {2, 3})},
              {"s", floats({60000, 1, 60000, 3, 60000, 5}, {3, 2}).cast(DType::F16)}};
  EXPECT_VALUES(evaluate(mean(x, {1}), feeds), (Extents{2}), 2, 6);
  EXPECT_VALUES(evaluate(mean(x, {0, 1}, true), feeds), (Extents{1, 1}), 4);
  EXPECT_VALUES(evaluate(mean(s, {0}), feeds), (Extents{2}), 60000, 3);
  EXPECT_VALUES(gradient(mean(x, {1}), x, feeds), (Extents{2, 3}), 1 / 3.f, 1 / 3.f, 1 / 3.f, 1 / 3.f, 1 / 3.f,
                1 / 3.f);
}

TEST(Reduce, MaxSharesTheGradientOfTies) {
  Graph g;
  Node x = g.input("x", DType::F64, {3});
  Feeds feeds{{"x", doubles({.6, .6, .3}, {3})}};
  EXPECT_VALUES(gradient(max(x, {0}), x, feeds), (Extents{3}), .5, .5, 0);
}

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Reduce, EmptyAxesGiveTheNeutralElement) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 0, 3}), i = g.input("i", DType::I32, {2, 0}),
       b = g.input("b", DType::Bool, {0});
  Feeds feeds{{"x", Array(DType::F32, {2, 0, 3})}, {"i", Array(DType::I32, {2, 0})}, {"b", Array(DType::Bool, {0})}};
  EXPECT_VALUES(evaluate(sum(x, {1}, true), feeds), (Extents{2, 1, 3}), 0, 0, 0, 0, 0, 0);
  EXPECT_VALUES(evaluate(prod(x, {1}), feeds), (Extents{2, 3}), 1, 1, 1, 1, 1, 1);
  EXPECT_VALUES(evaluate(max(x, {1}), feeds), (Extents{2, 3}), -kInf, -kInf, -kInf, -kInf, -kInf, -kInf);
  EXPECT_VALUES(evaluate(min(x, {1, 2}), feeds), (Extents{2}), kInf, kInf);
  EXPECT_VALUES(evaluate(mean(x, {1, 2}), feeds), (Extents{2}), kNan, kNan);
  EXPECT_VALUES(evaluate(max(i, {1}), feeds), (Extents{2}), -2147483648.0, -2147483648.0);
  EXPECT_VALUES(evaluate(min(i, {-1}), feeds), (Extents{2}), 2147483647.0, 2147483647.0);
  EXPECT_VALUES(evaluate(any(b, {0}), feeds), (Extents{}), 0);
  EXPECT_VALUES(evaluate(all(b, {0}), feeds), (Extents{}), 1);
  EXPECT_VALUES(evaluate(sum(x, {0}), feeds), (Extents{0, 3}));
  EXPECT_VALUES(gradient(max(x, {1}), x, feeds), (Extents{2, 0, 3}));
}

TEST(Reduce, NoAxesReduceNothing) {
  Graph g;
  Node x = g.input("x", DType::F64, {2}), s = g.input("s", DType::F64, {});
  Feeds feeds{{"x", doubles({3, 4}, {2})}, {"s", doubles({5}, {})}};
  EXPECT_VALUES(evaluate(sum(x, {}), feeds), (Extents{2}), 3, 4);
  EXPECT_VALUES(evaluate(mean(s, {}), feeds), (Extents{}), 5);
  EXPECT_VALUES(gradient(prod(x, {}), x, feeds), (Extents{2}), 1, 1);
  EXPECT_VALUES(gradient(max(s, {}), s, feeds), (Extents{}), 1);
}

TEST(Reduce, SumsOfSixteenBitsAreWide) {
  Graph g;
  for (DType d : {DType::F16, DType::BF16}) {
    Node x = g.input(std::string(to_string(d)), d, {4096});
    Feeds feeds{{std::string(to_string(d)), Array(std::vector<float>(4096, 1), {4096}).cast(d)}};
    EXPECT_VALUES(evaluate(sum(x, {0}), feeds), (Extents{}), 4096);
    EXPECT_VALUES(evaluate(slice_axis(cumsum(x, 0), 0, -1, INT64_MAX), feeds), (Extents{1}), 4096);
  }
}

TEST(Reduce, IntegersAreExactAndWrap) {
  Graph g;
  Node x = g.input("x", DType::I64, {3}), y = g.input("y", DType::I8, {3}), u = g.input("u", DType::U64, {2});
  Feeds feeds{{"x", longs({9007199254740993, 9007199254740992, 1}, {3})},
              {"y", ints({100, 27, 1}, {3}).cast(DType::I8)},
              {"u", Array(std::vector<std::uint64_t>{~0ull, ~0ull - 1}, {2})}};
  EXPECT_EQ(evaluate(sum(x, {0}), feeds).values<std::int64_t>()[0], 18014398509481986);
  EXPECT_EQ(evaluate(max(x, {0}), feeds).values<std::int64_t>()[0], 9007199254740993);
  EXPECT_EQ(evaluate(argmax(x, 0), feeds).values<std::int64_t>()[0], 0);
  EXPECT_VALUES(evaluate(sum(y, {0}), feeds), (Extents{}), -128);
  EXPECT_VALUES(evaluate(cumsum(y, 0), feeds), (Extents{3}), 100, 127, -128);
  EXPECT_EQ(evaluate(max(u, {0}), feeds).values<std::uint64_t>()[0], ~0ull);
  EXPECT_EQ(evaluate(argmin(u, 0), feeds).values<std::int64_t>()[0], 1);
}

TEST(Reduce, NanWins) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 3});
  Feeds feeds{{"x", floats({1, float(kNan), 3, 4, 6, 5}, {2, 3})}};
  EXPECT_VALUES(evaluate(max(x, {1}), feeds), (Extents{2}), kNan, 6);
  EXPECT_VALUES(evaluate(min(x, {1}), feeds), (Extents{2}), kNan, 4);
}

TEST(Reduce, AnyAndAllOfBoolsAndIntegers) {
  Graph g;
  Node x = g.input("x", DType::I32, {2, 2});
  Feeds feeds{{"x", ints({0, 0, 0, -5}, {2, 2})}};
  Array some = evaluate(any(x, {1}), feeds);
  EXPECT_EQ(some.dtype(), DType::Bool);
  EXPECT_VALUES(some, (Extents{2}), 0, 1);
  EXPECT_VALUES(evaluate(all(x, {0}, true), feeds), (Extents{1, 2}), 0, 0);
  EXPECT_VALUES(evaluate(all(x != 7, {0, 1}), feeds), (Extents{}), 1);
}

TEST(Reduce, ArgmaxTakesTheFirstAndNanCountsAsTheExtreme) {
  Graph g;
  Node x = g.input("x", DType::F32, {5, 5});
  float n = float(kNan);
  Feeds feeds{{"x", floats({2, n, 7, 4, 1, n, 2, 7, 4, 1, 2, 4, 7, 1, n, n, n, n, n, n, 3, 7, 7, 3, 3}, {5, 5})}};
  EXPECT_VALUES(evaluate(argmax(x, 1), feeds), (Extents{5}), 1, 0, 4, 0, 1);
  EXPECT_VALUES(evaluate(argmin(x, -1, true), feeds), (Extents{5, 1}), 1, 0, 4, 0, 0);
  EXPECT_VALUES(evaluate(argmax(x, 0), feeds), (Extents{5}), 1, 0, 3, 3, 2);
}

TEST(Reduce, ProductGradientWithZeros) {
  Graph g;
  Node x = g.input("x", DType::F64, {3});
  auto at = [&](std::vector<double> v) { return gradient(prod(x, {0}), x, {{"x", doubles(v, {3})}}); };
  EXPECT_VALUES(at({0, 2, 3}), (Extents{3}), 6, 0, 0);
  EXPECT_VALUES(at({0, 0, 3}), (Extents{3}), 0, 0, 0);
  EXPECT_VALUES(at({2, 0, 4}), (Extents{3}), 0, 8, 0);
  Node y = g.input("y", DType::F64, {2, 3, 2});
  Feeds feeds{{"y", doubles({1, 2, 3, 4, 5, 6, 7, 0, 9, 10, 11, 12}, {2, 3, 2})}};
  EXPECT_VALUES(gradient(prod(y, {0, 2}, true), y, feeds), (Extents{2, 3, 2}), 0, 0, 360, 270, 792, 660, 0, 14, 120,
                108, 360, 330);
}

TEST(Reduce, CumulativeProductGradientWithZeros) {
  Graph g;
  auto at = [&](std::vector<double> v) {
    Extents shape{std::int64_t(v.size())};
    Node x = g.input("x" + std::to_string(g.size()), DType::F64, to_shape(shape));
    return gradient(cumprod(x, 0), x, {{x.name(), doubles(v, shape)}});
  };
  EXPECT_VALUES(at({0, 2, 3}), (Extents{3}), 9, 0, 0);
  EXPECT_VALUES(at({2, 3, 0}), (Extents{3}), 4, 2, 6);
  EXPECT_VALUES(at({2, 0, 0, 3}), (Extents{4}), 1, 2, 0, 0);
  EXPECT_VALUES(at({2, 0, 3, 4}), (Extents{4}), 1, 32, 0, 0);
}

TEST(Reduce, ScansExclusiveAndReverse) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 3});
  Feeds feeds{{"x", floats({1, 2, 3, 4, 5, 6}, {2, 3})}};
  EXPECT_VALUES(evaluate(cumsum(x, 1), feeds), (Extents{2, 3}), 1, 3, 6, 4, 9, 15);
  EXPECT_VALUES(evaluate(cumsum(x, 1, true), feeds), (Extents{2, 3}), 0, 1, 3, 0, 4, 9);
  EXPECT_VALUES(evaluate(cumsum(x, 1, false, true), feeds), (Extents{2, 3}), 6, 5, 3, 15, 11, 6);
  EXPECT_VALUES(evaluate(cumprod(x, 0, true, true), feeds), (Extents{2, 3}), 4, 5, 6, 1, 1, 1);
}

TEST(Reduce, Errors) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 3}), i = g.input("i", DType::I32, {2, 0}), c = g.input("c", DType::C64, {2}),
       b = g.input("b", DType::Bool, {2});
  EXPECT_ERROR(sum(x, {2}), "[sum] axis 2: expected one in [-2, 2)");
  EXPECT_ERROR(sum(x, {0, -2}), "[sum] axis 0 stands twice in the list of axes");
  EXPECT_ERROR(sum(b, {0}), "[sum] needs a number, got bool");
  EXPECT_ERROR(mean(i, {0}), "[mean] needs a float, got i32 (cast it first)");
  EXPECT_ERROR(any(x, {0}), "[any] needs an integer or bool, got f32");
  EXPECT_ERROR(argmax(i, 1), "[argmax] axis 1 of [2,0] has no elements to choose from");
  EXPECT_ERROR(cumsum(b, 0), "[cumsum] needs a number, got bool");
  EXPECT_ERROR(cumsum(x, 5), "[cumsum] axis 5: expected one in [-2, 2)");
  expect_error<Unsupported>([&] { argmax(c, 0); }, "[argmax] complex values can only be moved, got c64");
  expect_error<Unsupported>([&] { cumprod(c, 0); }, "[cumprod] complex values can only be moved, got c64");
  Node s = g.input("s", DType::F32, {Dim::symbol("n")});
  EXPECT_ERROR(evaluate(argmin(s, 0), {{"s", Array(DType::F32, {0})}}), "axis 0 of [0] has no elements to choose from");
}
