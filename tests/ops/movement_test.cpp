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

TEST(Movement, FlipReversesAxes) {
  Graph g;
  Node x = g.input("x", DType::F64, {2, 3});
  Feeds feeds{{"x", doubles({1, 2, 3, 4, 5, 6}, {2, 3})}};
  EXPECT_VALUES(evaluate(flip(x, {-1}), feeds), (Extents{2, 3}), 3, 2, 1, 6, 5, 4);
  EXPECT_VALUES(gradient(flip(x, {0, 1}), x, feeds, doubles({1, 2, 3, 4, 5, 6}, {2, 3})), (Extents{2, 3}), 6, 5, 4, 3,
                2, 1);
}

TEST(Movement, SliceAxisFollowsNumPy) {
  Graph g;
  Node x = g.constant(ints({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {10}));
  auto at = [&](Dim start, Dim stop, std::int64_t step = 1) {
    return evaluate(slice_axis(x, 0, start, stop, step), {});
  };
  EXPECT_VALUES(at(0, 5, -1), (Extents{0}));
  EXPECT_VALUES(at(2, 5), (Extents{3}), 2, 3, 4);
  EXPECT_VALUES(at(-3, INT64_MAX), (Extents{3}), 7, 8, 9);
  EXPECT_VALUES(at(-100, 100, 4), (Extents{3}), 0, 4, 8);
  EXPECT_VALUES(at(INT64_MAX, INT64_MIN, -3), (Extents{4}), 9, 6, 3, 0);
  EXPECT_VALUES(at(8, 2, -2), (Extents{3}), 8, 6, 4);
  EXPECT_VALUES(at(5, -1, -1), (Extents{0}));
  EXPECT_VALUES(at(5, 2), (Extents{0}));
  EXPECT_ERROR(slice_axis(x, 0, 0, 5, 0), "[slice_axis] the step is 0");
}

TEST(Movement, SymbolicSizes) {
  Graph g;
  Dim n = Dim::symbol("n");
  Node x = g.input("x", DType::F64, {n, 2});
  Feeds feeds{{"x", doubles({1, 2, 3, 4, 5, 6}, {3, 2})}};
  Node last = slice_axis(x, 0, -1, INT64_MAX);
  EXPECT_EQ(last.shape(), (Shape{1, 2}));
  EXPECT_VALUES(evaluate(last, feeds), (Extents{1, 2}), 5, 6);
  EXPECT_VALUES(gradient(sum(last, {0, 1}), x, feeds), (Extents{3, 2}), 0, 0, 0, 0, 1, 1);
  EXPECT_VALUES(evaluate(slice_axis(x, 0, 0, 2), feeds), (Extents{2, 2}), 1, 2, 3, 4);
  EXPECT_EQ(slice(x, {1, 0}, {n - 1, 2}, {1, 1}).shape(), (Shape{n - 1, 2}));
  Node backwards = slice_axis(x, 0, INT64_MAX, INT64_MIN, -2);
  EXPECT_VALUES(evaluate(backwards, feeds), (Extents{2, 2}), 5, 6, 1, 2);
  EXPECT_VALUES(gradient(sum(backwards, {0, 1}), x, feeds), (Extents{3, 2}), 1, 1, 0, 0, 1, 1);
  Node padded = pad(x, {n, 0}, {0, 0}, -1);
  EXPECT_EQ(padded.shape(), (Shape{n * 2, 2}));
  EXPECT_VALUES(evaluate(padded, feeds), (Extents{6, 2}), -1, -1, -1, -1, -1, -1, 1, 2, 3, 4, 5, 6);
  EXPECT_VALUES(evaluate(reshape(x, {n * 2}), feeds), (Extents{6}), 1, 2, 3, 4, 5, 6);
  EXPECT_VALUES(evaluate(concat({iota(g, {n, 2}, 0, DType::F64), x}, 0), feeds), (Extents{6, 2}), 0, 0, 1, 1, 2, 2, 1,
                2, 3, 4, 5, 6);
  EXPECT_ERROR(evaluate(slice(x, {5, 0}, {1, 2}, {1, 1}), feeds),
               "axis 0: 1 elements from 5 by steps of 1 do not lie inside [3,2]");
}

TEST(Movement, EveryDtypeAndZeroSizes) {
  Graph g;
  Node c = g.constant(Array(std::vector<c64>{{1, 2}, {3, 4}}, {2}));
  EXPECT_EQ(evaluate(pad(flip(c, {0}), {1}, {0}), {}).values<c64>()[1], (c64{3, 4}));
  Node b = g.constant(Array(std::vector<bool>{true, false}, {2}));
  EXPECT_VALUES(evaluate(pad(b, {0}, {1}, 1), {}), (Extents{3}), 1, 0, 1);
  Node e = g.constant(Array(DType::F32, {0, 3}));
  EXPECT_VALUES(evaluate(transpose(e, {1, 0}), {}), (Extents{3, 0}));
  EXPECT_VALUES(evaluate(concat({e, e}, 0), {}), (Extents{0, 3}));
  EXPECT_VALUES(evaluate(pad(e, {1, 0}, {0, 0}, 2), {}), (Extents{1, 3}), 2, 2, 2);
  EXPECT_VALUES(evaluate(expand(reshape(e, {0}), {4, 0}), {}), (Extents{4, 0}));
  Node s = g.constant(5, DType::I64);
  EXPECT_VALUES(evaluate(transpose(s, {}), {}), (Extents{}), 5);
  EXPECT_VALUES(evaluate(slice(s, {}, {}, {}), {}), (Extents{}), 5);
  EXPECT_VALUES(evaluate(flip(s, {}), {}), (Extents{}), 5);
}

TEST(Movement, Helpers) {
  Graph g;
  Node x = g.constant(ints({1, 2, 3, 4, 5, 6}, {1, 2, 3}));
  EXPECT_VALUES(evaluate(swap_last(x), {}), (Extents{1, 3, 2}), 1, 4, 2, 5, 3, 6);
  EXPECT_EQ(squeeze(x, {0}).shape(), (Shape{2, 3}));
  EXPECT_EQ(unsqueeze(x, {0, -1}).shape(), (Shape{1, 1, 2, 3, 1}));
  Nodes parts = split(x, -1, {1, 2});
  EXPECT_VALUES(evaluate(parts[1], {}), (Extents{1, 2, 2}), 2, 3, 5, 6);
  EXPECT_VALUES(evaluate(stack({parts[0], parts[0] * 2}, -1), {}), (Extents{1, 2, 1, 2}), 1, 2, 4, 8);
  EXPECT_ERROR(squeeze(x, {1}), "[squeeze] axis 1 has size 2, expected 1");
  EXPECT_ERROR(split(x, 2, {1, 1}), "[split] the sizes [1,1] add up to 2, expected 3, the size of axis 2");
  EXPECT_ERROR(swap_last(g.constant(1, DType::F32)), "[swap_last] needs two axes or more");
}

TEST(Movement, Errors) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 3}), i = g.input("i", DType::I32, {2, 3});
  EXPECT_ERROR(reshape(x, {4}), "[reshape] element counts differ: got [2,3] and [4]");
  EXPECT_ERROR(reshape(x, {-2, -3}), "[reshape] got the shape [-2,-3], expected sizes of 0 or more");
  EXPECT_ERROR(expand(x, {2, 4}), "[expand]");
  EXPECT_ERROR(expand(x, {3}), "[expand] cannot repeat [2,3] to [3]");
  EXPECT_ERROR(transpose(x, {0}), "[transpose] `perm` has 1 entries, expected 2, one an axis");
  EXPECT_ERROR(transpose(x, {0, -2}), "[transpose] axis 0 stands twice");
  EXPECT_ERROR(slice(x, {0}, {1, 1}, {1, 1}), "[slice] `starts` has 1 entries, expected 2, one an axis");
  EXPECT_ERROR(slice(x, {0, 0}, {1}, {1, 1}), "[slice] `sizes` has 1 entries");
  EXPECT_ERROR(slice(x, {0, 0}, {1, 1}, {1}), "[slice] `steps` has 1 entries");
  EXPECT_ERROR(slice(x, {0, 0}, {1, 1}, {1, 0}), "[slice] the step of axis 1 is 0");
  EXPECT_ERROR(slice(x, {0, 0}, {1, -1}, {1, 1}), "[slice] the size of axis 1 is -1, expected 0 or more");
  EXPECT_ERROR(slice(x, {0, 1}, {1, 2}, {1, 2}),
               "[slice] axis 1: 2 elements from 1 by steps of 2 do not lie inside [2,3]");
  EXPECT_ERROR(pad(x, {0}, {0, 0}), "[pad] `low` has 1 entries");
  EXPECT_ERROR(pad(x, {0, -1}, {0, 0}), "[pad] axis 1 gets -1 elements before and 0 after, expected 0 or more");
  EXPECT_ERROR(pad(i, {0, 0}, {1, 0}, 0.5), "[pad] 0.5 is not a value of i32");
  EXPECT_ERROR(concat({x, i}, 0), "[concat] inputs need one dtype: got f32 and i32");
  EXPECT_ERROR(concat({x, transpose(x, {1, 0})}, 0), "[concat] inputs may only differ in axis 0: got [2,3] and [3,2]");
  EXPECT_ERROR(concat({}, 0), "[concat] needs at least one node among its inputs");
  EXPECT_ERROR(flip(x, {0, 0}), "[flip] axis 0 stands twice");
  EXPECT_ERROR(iota(g, {}, 0), "[iota] axis 0: a scalar has no axes");
  EXPECT_ERROR(iota(g, {2}, 0, DType::Bool), "[iota] gives numbers, got bool");
}
