// Pools: values that PyTorch and ONNX give, ceil mode, gradients, and one test a message.
#include <gtest/gtest.h>

#include <numeric>

#include "ops/values.h"

using namespace rlx;

static Array counted(Extents shape) {
  Array a(DType::F64, shape);
  std::iota(a.values<double>().begin(), a.values<double>().end(), 1);
  return a;
}

TEST(Pool, CeilModeDividesByWhatIsThere) {
  Graph g;
  Node x = g.constant(counted({1, 1, 5})), y = g.constant(counted({1, 1, 4, 4}));
  EXPECT_VALUES(
      evaluate(avg_pool(x, {.kernel = {2}, .strides = {2}, .ceil_mode = true, .count_include_pad = true}), {}),
      (Extents{1, 1, 3}), 1.5, 3.5, 5);
  EXPECT_VALUES(evaluate(avg_pool(y, {.kernel = {3, 3}, .strides = {2, 2}, .ceil_mode = true}), {}),
                (Extents{1, 1, 2, 2}), 6, 7.5, 12, 13.5);
}

TEST(Pool, CeilModeDropsAWindowThatStartsPastTheEnd) {
  Graph g;
  Node x = g.constant(counted({1, 1, 4})), y = g.constant(counted({1, 1, 5}));
  PoolAttrs a{.kernel = {1}, .strides = {3}, .ceil_mode = true},
      b{.kernel = {3}, .strides = {3}, .low = {1}, .high = {1}, .ceil_mode = true};
  EXPECT_VALUES(evaluate(max_pool(x, a), {}), (Extents{1, 1, 2}), 1, 4);
  EXPECT_VALUES(evaluate(avg_pool(x, a), {}), (Extents{1, 1, 2}), 1, 4);
  EXPECT_VALUES(evaluate(max_pool(y, b), {}), (Extents{1, 1, 2}), 2, 5);
  EXPECT_VALUES(evaluate(avg_pool(y, b), {}), (Extents{1, 1, 2}), 1.5, 4);
}

TEST(Pool, PaddingCountsWhereAsked) {
  Graph g;
  Node x = g.constant(counted({1, 1, 3}));
  PoolAttrs a{.kernel = {3}, .low = {1}, .high = {1}};
  EXPECT_VALUES(evaluate(avg_pool(x, a), {}), (Extents{1, 1, 3}), 1.5, 2, 2.5);
  a.count_include_pad = true;
  EXPECT_VALUES(evaluate(avg_pool(x, a), {}), (Extents{1, 1, 3}), 1, 2, 5 / 3.);
}

TEST(Pool, MaxGivesTheGradientToTheFirst) {
  Graph g;
  Node x = g.input("x", DType::F64, {1, 2, 2, 2});
  Feeds feeds{{"x", doubles({3, 3, 1, 3, -1, -2, -1, -3}, {1, 2, 2, 2})}};
  Node y = max_pool(x, {.kernel = {2, 2}});
  EXPECT_VALUES(evaluate(y, feeds), (Extents{1, 2, 1, 1}), 3, -1);
  EXPECT_VALUES(evaluate(max_pool_indices(x, {.kernel = {2, 2}}), feeds), (Extents{1, 2, 1, 1}), 0, 0);
  EXPECT_VALUES(gradient(y, x, feeds), (Extents{1, 2, 2, 2}), 1, 0, 0, 0, 1, 0, 0, 0);
}

TEST(Pool, DilationStridesAndNan) {
  Graph g;
  double nan = std::numeric_limits<double>::quiet_NaN();
  Node x = g.constant(doubles({1, 9, 2, 3, nan, 4, 0}, {1, 1, 7}));
  EXPECT_VALUES(evaluate(max_pool(x, {.kernel = {2}, .strides = {2}, .dilation = {3}}), {}), (Extents{1, 1, 2}), 3, 4);
  EXPECT_VALUES(evaluate(max_pool(x, {.kernel = {3}, .strides = {2}}), {}), (Extents{1, 1, 3}), 9, nan, nan);
  Node i = g.constant(ints({5, -7, 2, 8}, {1, 1, 2, 2}));
  EXPECT_VALUES(evaluate(max_pool(i, {.kernel = {1, 2}}), {}), (Extents{1, 1, 2, 1}), 5, 8);
}

TEST(Pool, SymbolicSizes) {
  Graph g;
  Node x = g.input("x", DType::F64, {Dim::symbol("b"), 1, Dim::symbol("n")});
  Feeds feeds{{"x", counted({2, 1, 5})}};
  PoolAttrs a{.kernel = {2}, .strides = {2}, .ceil_mode = true};
  EXPECT_VALUES(evaluate(max_pool(x, a), feeds), (Extents{2, 1, 3}), 2, 4, 5, 7, 9, 10);
  EXPECT_VALUES(gradient(max_pool(x, a), x, feeds), (Extents{2, 1, 5}), 0, 1, 0, 1, 1, 0, 1, 0, 1, 1);
  EXPECT_VALUES(gradient(avg_pool(x, a), x, feeds), (Extents{2, 1, 5}), .5, .5, .5, .5, 1, .5, .5, .5, .5, 1);
}

TEST(Pool, Errors) {
  Graph g;
  Node x = g.input("x", DType::F32, {1, 1, 4}), i = g.input("i", DType::I32, {1, 1, 4}),
       m = g.input("m", DType::F32, {2, 2});
  EXPECT_ERROR(max_pool(m, {.kernel = {2}}), "[max_pool] needs N, C and 1 to 3 more axes, got [2,2]");
  EXPECT_ERROR(max_pool(x, {}), "[max_pool] `kernel` has 0 entries, expected 1");
  EXPECT_ERROR(max_pool(x, {.kernel = {2, 2}}), "[max_pool] `kernel` has 2 entries, expected 1");
  EXPECT_ERROR(max_pool(x, {.kernel = {0}}), "[max_pool] `kernel` is [0], expected 1 to 2147483647");
  EXPECT_ERROR(max_pool(x, {.kernel = {2}, .strides = {0}}), "[max_pool] `strides` is [0], expected 1 to 2147483647");
  EXPECT_ERROR(max_pool(x, {.kernel = {2}, .low = {-1}}), "[max_pool] `low` is [-1], expected 0 to 2147483647");
  EXPECT_ERROR(max_pool(x, {.kernel = {2}, .dilation = {0}}), "[max_pool] `dilation` is [0], expected 1 to 2147483647");
  EXPECT_ERROR(max_pool(x, {.kernel = {2}, .low = {2}}),
               "[max_pool] axis 0 is padded by 2 and 0, expected less than the window's 2");
  EXPECT_ERROR(max_pool(x, {.kernel = {5}}),
               "[max_pool] a window of 5 is larger than the axis of 4 with its padding of 0");
  EXPECT_ERROR(max_pool(x, {.kernel = {2}, .count_include_pad = true}),
               "[max_pool] count_include_pad is for avg_pool only");
  EXPECT_ERROR(avg_pool(i, {.kernel = {2}}), "[avg_pool] needs floats, got i32 (cast them first)");
  EXPECT_ERROR(avg_pool_backward(x, {1, 1, 4}, {.kernel = {2}}),
               "[avg_pool_backward] got the cotangent [1,1,4], expected [1,1,3] for [1,1,4]");
  EXPECT_ERROR(
      max_pool(g.input("one", DType::F32, {1, 1, 1}), {.kernel = {2}, .low = {1}, .high = {2}, .dilation = {3}}),
      "[max_pool] window 0 of axis 2 holds no element of its 1");
}
