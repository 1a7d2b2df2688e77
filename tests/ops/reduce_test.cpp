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
