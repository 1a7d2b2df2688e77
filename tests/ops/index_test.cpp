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
