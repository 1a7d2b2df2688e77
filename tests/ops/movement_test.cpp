// Movement: values that NumPy gives, symbolic sizes, gradients, and one test a message.
#include <gtest/gtest.h>

#include "ops/values.h"

using namespace rlx;

TEST(Movement, TransposeMovesAxes) {
  Graph g;
  Node x = g.input("x", DType::I32, {2, 3, 1});
  Array a = ints({1, 2, 3, 4, 5, 6}, {2, 3, 1});
  EXPECT_VALUES(evaluate(transpose(x, {1, -1, 0}), {{"x", a}}), (Extents{3, 1, 2}), 1, 4, 2, 5, 3, 6);
}

TEST(Movement, SliceSteps) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 5});
  Feeds feeds{{"x", floats({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {2, 5})}};
  EXPECT_VALUES(evaluate(slice(x, {0, 1}, {2, 2}, {1, 2}), feeds), (Extents{2, 2}), 1, 3, 6, 8);
  EXPECT_VALUES(evaluate(slice(x, {1, 4}, {2, 3}, {-1, -2}), feeds), (Extents{2, 3}), 9, 7, 5, 4, 2, 0);
  EXPECT_VALUES(evaluate(slice(x, {0, 0}, {2, 0}, {1, -1}), feeds), (Extents{2, 0}));
}

TEST(Movement, SliceGradientPutsBack) {
  Graph g;
  Node x = g.input("x", DType::F64, {7});
  Feeds feeds{{"x", doubles({0, 1, 2, 3, 4, 5, 6}, {7})}};
  Array w = doubles({1, 2, 3}, {3});
  EXPECT_VALUES(gradient(slice(x, {1}, {3}, {2}), x, feeds, w), (Extents{7}), 0, 1, 0, 2, 0, 3, 0);
  EXPECT_VALUES(gradient(slice(x, {0}, {3}, {3}), x, feeds, w), (Extents{7}), 1, 0, 0, 2, 0, 0, 3);
  EXPECT_VALUES(gradient(slice(x, {6}, {3}, {-3}), x, feeds, w), (Extents{7}), 3, 0, 0, 2, 0, 0, 1);
  EXPECT_VALUES(gradient(slice(x, {2}, {3}, {-1}), x, feeds, w), (Extents{7}), 3, 2, 1, 0, 0, 0, 0);
}

TEST(Movement, PadAndConcat) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 2}), y = g.input("y", DType::F32, {2, 1});
  Feeds feeds{{"x", floats({1, 2, 3, 4}, {2, 2})}, {"y", floats({5, 6}, {2, 1})}};
  EXPECT_VALUES(evaluate(pad(x, {1, 0}, {0, 1}, 9), feeds), (Extents{3, 3}), 9, 9, 9, 1, 2, 9, 3, 4, 9);
  EXPECT_VALUES(evaluate(concat({x, y, x}, -1), feeds), (Extents{2, 5}), 1, 2, 5, 1, 2, 3, 4, 6, 3, 4);
  EXPECT_VALUES(gradient(pad(x, {1, 0}, {0, 1}), x, feeds), (Extents{2, 2}), 1, 1, 1, 1);
  EXPECT_VALUES(gradient(concat({x, y, x}, 1), x, feeds, floats({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {2, 5})),
                (Extents{2, 2}), 5, 7, 15, 17);
}

TEST(Movement, Iota) {
  Graph g;
  EXPECT_VALUES(evaluate(iota(g, {2, 3}, 1), {}), (Extents{2, 3}), 0, 1, 2, 0, 1, 2);
  EXPECT_VALUES(evaluate(iota(g, {2, 3}, -2, DType::F16), {}), (Extents{2, 3}), 0, 0, 0, 1, 1, 1);
  EXPECT_ERROR(iota(g, {200}, 0, DType::I8), "[iota] 199 is not a value of i8");
}
