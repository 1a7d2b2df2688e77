// Gather, scatter and their kin: values that NumPy gives, negative and wrong indices, and one test a message.
#include <gtest/gtest.h>

#include "ops/values.h"

using namespace rlx;

TEST(Index, GatherCountsFromTheEnd) {
  Graph g;
  Node x = g.input("x", DType::F32, {5}), i = g.input("i", DType::I64, {3});
  Feeds feeds{{"x", floats({1, 2, 3, 4, 5}, {5})}, {"i", longs({-1, -3, 0}, {3})}};
  EXPECT_VALUES(evaluate(gather(x, i, 0), feeds), (Extents{3}), 5, 3, 1);
  EXPECT_VALUES(gradient(gather(x, i, 0), x, feeds, floats({1, 2, 3}, {3})), (Extents{5}), 3, 0, 2, 0, 1);
  feeds["i"] = longs({-1, 5, 0}, {3});
  EXPECT_ERROR(evaluate(gather(x, i, 0), feeds), "[gather] index 5 at [1] is out of range [-5, 5) of axis 0");
}

TEST(Index, GatherReplacesTheAxis) {
  Graph g;
  Node x = g.input("x", DType::I32, {2, 3}), i = g.input("i", DType::U8, {2, 2});
  Feeds feeds{{"x", ints({1, 2, 3, 4, 5, 6}, {2, 3})}, {"i", ints({2, 0, 1, 2}, {2, 2}).cast(DType::U8)}};
  EXPECT_VALUES(evaluate(gather(x, i, -1), feeds), (Extents{2, 2, 2}), 3, 1, 2, 3, 6, 4, 5, 6);
  EXPECT_VALUES(evaluate(gather(x, g.constant(1, DType::I32), 0), feeds), (Extents{3}), 4, 5, 6);
}

TEST(Index, NegativeIndicesOfElementsAndCoordinates) {
  Graph g;
  Node x = g.constant(floats({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {3, 4}));
  Node minus = full(g, -1, {DType::I64, {3, 4}});
  EXPECT_VALUES(evaluate(gather_elements(x, minus, 1), {}), (Extents{3, 4}), 3, 3, 3, 3, 7, 7, 7, 7, 11, 11, 11, 11);
  Node at = g.constant(longs({-1, -1, 0, -2}, {2, 2}));
  EXPECT_VALUES(evaluate(gather_nd(x, at), {}), (Extents{2}), 11, 2);
  Node rows = g.constant(longs({-1, 0}, {2, 1})), zeros = full_like(x, 0);
  Node updates = g.constant(floats({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4}));
  EXPECT_VALUES(evaluate(scatter_nd(zeros, rows, updates, ScatterMode::Set), {}), (Extents{3, 4}), 5, 6, 7, 8, 0, 0, 0,
                0, 1, 2, 3, 4);
  Node hot = one_hot(g.constant(longs({-1, 2}, {2})), 5);
  EXPECT_EQ(hot.dtype(), DType::F32);
  EXPECT_VALUES(evaluate(hot, {}), (Extents{2, 5}), 0, 0, 0, 0, 1, 0, 0, 1, 0, 0);
}

TEST(Index, ScatterNdTakesItsDepthFromTheLastAxis) {
  Graph g;
  Node zeros = full(g, 0, {DType::F32, {3, 4}}), at = g.constant(longs({0, 1, 2, 3}, {2, 2}));
  Node updates = g.constant(floats({5, 7}, {2}));
  EXPECT_VALUES(evaluate(scatter_nd(zeros, at, updates, ScatterMode::Set), {}), (Extents{3, 4}), 0, 5, 0, 0, 0, 0, 0, 0,
                0, 0, 0, 7);
}

TEST(Index, GatherNdWithBatches) {
  Graph g;
  Node x = g.constant(ints({0, 1, 2, 3, 4, 5, 6, 7}, {2, 2, 2})), at = g.constant(longs({1, 0}, {2, 1}));
  EXPECT_VALUES(evaluate(gather_nd(x, at, 1), {}), (Extents{2, 2}), 2, 3, 4, 5);
  EXPECT_VALUES(evaluate(gather_nd(x, at), {}), (Extents{2, 2, 2}), 4, 5, 6, 7, 0, 1, 2, 3);
}

TEST(Index, ScatterElementsAdds) {
  Graph g;
  Node ones = full(g, 1, {DType::F32, {3, 3}}), at = g.constant(longs({0, 1, 2, 0, 1, 2}, {2, 3}));
  Node updates = g.constant(floats({1, 2, 3, 4, 5, 6}, {2, 3}));
  EXPECT_VALUES(evaluate(scatter_elements(ones, at, updates, 0, ScatterMode::Add), {}), (Extents{3, 3}), 6, 1, 1, 1, 8,
                1, 1, 1, 10);
  EXPECT_VALUES(evaluate(scatter_elements(ones, at, updates, 0, ScatterMode::Set), {}), (Extents{3, 3}), 4, 1, 1, 1, 5,
                1, 1, 1, 6);
}

TEST(Index, ScatterAddIsWideAndWraps) {
  Graph g;
  Node at = full(g, 0, {DType::I32, {4096}});
  Node h = scatter(full(g, 0, {DType::F16, {1}}), at, full(g, 1, {DType::F16, {4096}}), 0, ScatterMode::Add);
  EXPECT_VALUES(evaluate(h, {}), (Extents{1}), 4096);
  Node i = scatter(full(g, 100, {DType::I8, {1}}), g.constant(ints({0}, {1})), full(g, 100, {DType::I8, {1}}), 0,
                   ScatterMode::Add);
  EXPECT_VALUES(evaluate(i, {}), (Extents{1}), -56);
}

TEST(Index, ScatterGradientsHaveTheirOperandsShapes) {
  Graph g;
  Node x = g.input("x", DType::F64, {3}), src = g.input("src", DType::F64, {4}), at = g.constant(longs({0, 2}, {2}));
  Feeds feeds{{"x", doubles({0, 0, 0}, {3})}, {"src", doubles({1, 1, 1, 1}, {4})}};
  Node y = scatter_elements(x, at, src, 0, ScatterMode::Add);
  EXPECT_VALUES(gradient(y, src, feeds), (Extents{4}), 1, 1, 0, 0);
  EXPECT_VALUES(gradient(y, x, feeds), (Extents{3}), 1, 1, 1);
  Node z = scatter_elements(x, at, src, 0, ScatterMode::Set);
  EXPECT_VALUES(gradient(z, src, feeds), (Extents{4}), 1, 1, 0, 0);
  EXPECT_VALUES(gradient(z, x, feeds), (Extents{3}), 0, 1, 0);
}

TEST(Index, OfEqualPlacesThatAreSetOnlyTheLastGetsAGradient) {
  Graph g;
  Node x = g.input("x", DType::F64, {2, 3}), u = g.input("u", DType::F64, {2, 3}),
       at = g.constant(longs({1, -1, 0}, {3}));
  Feeds feeds{{"x", doubles({1, 2, 3, 4, 5, 6}, {2, 3})}, {"u", doubles({7, 8, 9, 10, 11, 12}, {2, 3})}};
  Node y = scatter(x, at, u, 1, ScatterMode::Set);
  EXPECT_VALUES(evaluate(y, feeds), (Extents{2, 3}), 9, 7, 8, 12, 10, 11);
  Node rows = g.input("rows", DType::F64, {3, 3}), twice = g.constant(longs({1, 0, -1}, {3}));
  feeds["rows"] = doubles({1, 2, 3, 4, 5, 6, 7, 8, 9}, {3, 3});
  Node z = scatter(x, twice, rows, 0, ScatterMode::Set);
  EXPECT_VALUES(evaluate(z, feeds), (Extents{2, 3}), 4, 5, 6, 7, 8, 9);
  EXPECT_VALUES(gradient(z, rows, feeds), (Extents{3, 3}), 0, 0, 0, 1, 1, 1, 1, 1, 1);
  EXPECT_VALUES(gradient(z, x, feeds), (Extents{2, 3}), 0, 0, 0, 0, 0, 0);
}

TEST(Index, SortIsStableAndPutsNanLast) {
  Graph g;
  float n = std::numeric_limits<float>::quiet_NaN();
  Node x = g.constant(floats({3, n, 1, 3, n, 2}, {6}));
  EXPECT_VALUES(evaluate(argsort(x, 0), {}), (Extents{6}), 2, 5, 0, 3, 1, 4);
  EXPECT_VALUES(evaluate(argsort(x, 0, true), {}), (Extents{6}), 1, 4, 0, 3, 5, 2);
  EXPECT_VALUES(evaluate(sort(x), {}), (Extents{6}), 1, 2, 3, 3, n, n);
  Node u = g.constant(Array(std::vector<std::uint64_t>{~0ull, 5, ~0ull - 1}, {3, 1}));
  EXPECT_VALUES(evaluate(argsort(u, 0), {}), (Extents{3, 1}), 1, 2, 0);
}

TEST(Index, TopKAndItsGradient) {
  Graph g;
  Node x = g.input("x", DType::F64, {2, 5});
  Feeds feeds{{"x", doubles({1, 2, 6, 4, 5, 9, 5, 6, 7, 8}, {2, 5})}};
  Nodes top = top_k(x, 2);
  EXPECT_VALUES(evaluate(top[0], feeds), (Extents{2, 2}), 6, 5, 9, 8);
  EXPECT_VALUES(evaluate(top[1], feeds), (Extents{2, 2}), 2, 4, 0, 4);
  EXPECT_VALUES(gradient(top[0], x, feeds), (Extents{2, 5}), 0, 0, 1, 0, 1, 1, 0, 0, 0, 1);
  EXPECT_VALUES(evaluate(top_k(x, 1, 0, false)[0], feeds), (Extents{1, 5}), 1, 2, 6, 4, 5);
  EXPECT_ERROR(top_k(x, 6), "[top_k] got k = 6, expected 0 to 5, the size of axis 1");
}

TEST(Index, SymbolicSizes) {
  Graph g;
  Dim n = Dim::symbol("n");
  Node x = g.input("x", DType::F32, {n, 2}), i = g.input("i", DType::I64, {n});
  Feeds feeds{{"x", floats({1, 2, 3, 4, 5, 6}, {3, 2})}, {"i", longs({2, -2, 0}, {3})}};
  EXPECT_VALUES(evaluate(gather(x, i, 0), feeds), (Extents{3, 2}), 5, 6, 3, 4, 1, 2);
  EXPECT_VALUES(evaluate(one_hot(i, n, DType::I8), feeds), (Extents{3, 3}), 0, 0, 1, 0, 1, 0, 1, 0, 0);
  EXPECT_VALUES(evaluate(size(x, 0), feeds), (Extents{}), 3);
  EXPECT_VALUES(evaluate(gather_nd(x, stack({i, full_like(i, 1)}, 1)), feeds), (Extents{3}), 6, 4, 2);
}

TEST(Index, Errors) {
  Graph g;
  Node x = g.input("x", DType::F32, {3, 4}), f = g.input("f", DType::F32, {2}), i = g.input("i", DType::I64, {2}),
       u = g.input("u", DType::U64, {2}), b = g.input("b", DType::Bool, {3}), i2 = g.input("i2", DType::I32, {4, 4});
  EXPECT_ERROR(gather(x, f, 0), "[gather] indices must be integers, got f32");
  EXPECT_ERROR(gather(x, i, 2), "[gather] axis 2: expected one in [-2, 2)");
  EXPECT_ERROR(scatter(x, i, f, 0, ScatterMode::Set), "[scatter] updates have the shape [2], expected [2,4]");
  EXPECT_ERROR(scatter(x, i, i, 0, ScatterMode::Set), "[scatter] updates need the dtype of x: got i64, expected f32");
  EXPECT_ERROR(scatter(b, i, g.constant(Array(DType::Bool, {2})), 0, ScatterMode::Add),
               "[scatter] adding needs numbers, got bool");
  EXPECT_ERROR(gather_elements(x, i2, 1), "[gather_elements] indices [4,4] do not lie inside x [3,4] beside axis 1");
  EXPECT_ERROR(scatter_elements(x, i2, x, 0, ScatterMode::Add),
               "[scatter_elements] indices [4,4] do not lie inside updates [3,4]");
  EXPECT_ERROR(size(x, 2), "[size] axis 2");
  EXPECT_ERROR(argsort(x, 3), "[argsort] axis 3");
  EXPECT_ERROR(gather_nd(x, g.input("d", DType::I64, {2, 3})),
               "[gather_nd] the last axis of the indices must hold 1 or more coordinates");
  expect_error<Unsupported>([&] { argsort(g.input("c", DType::C64, {2}), 0); },
                            "[argsort] complex values have no order");
  Feeds feeds{{"x", Array(DType::F32, {3, 4})},
              {"i", longs({0, -4}, {2})},
              {"u", Array(std::vector<std::uint64_t>{0, ~0ull}, {2})}};
  EXPECT_ERROR(evaluate(gather(x, i, 0), feeds), "[gather] index -4 at [1] is out of range [-3, 3) of axis 0 (at %");
  EXPECT_ERROR(evaluate(gather(x, u, 0), feeds), "[gather] index 18446744073709551615 at [1] is out of range");
  EXPECT_ERROR(evaluate(one_hot(i, 3), feeds), "index -4 at [1] is out of range [-3, 3) of axis 0");
  EXPECT_ERROR(evaluate(scatter(x, i, full(g, 0, {DType::F32, {2, 4}}), 0, ScatterMode::Add), feeds),
               "[scatter] index -4 at [1] is out of range");
  EXPECT_ERROR(evaluate(gather_nd(x, stack({i, i}, 1)), feeds), "index -4 at [1] is out of range [-3, 3)");
}
