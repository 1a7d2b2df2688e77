// Random numbers: known answers from a Philox of our own in Python that gives the published test vectors, streams, and
// one test a message.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/values.h"

using namespace rlx;

TEST(Random, UniformBits) {
  Graph g;
  Node seed = g.constant(7, DType::I64);
  Array u = evaluate(random_uniform(seed, {5}), {});
  EXPECT_VALUES(u, (Extents{5}), 16015482 * 0x1p-24, 6827662 * 0x1p-24, 101923 * 0x1p-24, 6546454 * 0x1p-24,
                4864195 * 0x1p-24);
  Graph h;
  Node v = random_uniform(h.constant(7, DType::I32), {5}, -1.3, 3.7);
  EXPECT_VALUES(evaluate(v, {}), (Extents{5}), 0x1.bc8aca0000000p+1, 0x1.7837f80000000p-1, -0x1.45061c0000000p+0,
                0x1.4d4f440000000p-1, 0x1.3278200000000p-3);
}

TEST(Random, BernoulliBits) {
  Graph g;
  Node seed = g.constant(7, DType::U8);
  random_uniform(seed, {1});  // takes stream 0
  EXPECT_VALUES(evaluate(random_bernoulli(seed, {3, 4}, 0.3), {}), (Extents{3, 4}), 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0);
  EXPECT_EQ(evaluate(sum(cast(random_bernoulli(seed, {1000}, 1), DType::I32), {0}), {}).at(0), 1000);
  EXPECT_EQ(evaluate(sum(cast(random_bernoulli(seed, {1000}, 0), DType::I32), {0}), {}).at(0), 0);
}

TEST(Random, NormalUsesBothOutputs) {
  Graph g;
  Array n = evaluate(random_normal(g.constant(-3, DType::I32), {5}, 0, 1, DType::F64), {});
  EXPECT_NEAR(n.at(0), -0.5100865291903884, 1e-14);
  EXPECT_NEAR(n.at(1), -0.10073131467480236, 1e-14);
  EXPECT_NEAR(n.at(2), 0.5118319409323191, 1e-14);
  EXPECT_NEAR(n.at(3), 0.5755923440280899, 1e-14);
  EXPECT_NEAR(n.at(4), -1.0177138474583307, 1e-14);
}

TEST(Random, Moments) {
  Graph g;
  std::int64_t n = 100000;
  Array x = evaluate(random_normal(g.constant(1, DType::I64), {n}, 2, 3), {});
  double mean = 0, square = 0;
  for (float v : x.values<float>()) mean += v / double(n), square += double(v) * v / double(n);
  EXPECT_NEAR(mean, 2, 0.03);
  EXPECT_NEAR(std::sqrt(square - mean * mean), 3, 0.03);
}

TEST(Random, EqualNodesAreTwoAndSurviveText) {
  Graph g;
  Node seed = g.input("seed", DType::I64, {});
  Node a = random_uniform(seed, {Dim::symbol("n")}), b = random_uniform(seed, {Dim::symbol("n")});
  EXPECT_FALSE(same(a, b));
  g.input("x", DType::F32, {Dim::symbol("n")});
  g.set_outputs({a, b});
  Graph read = Graph::parse(g.text());
  EXPECT_EQ(read.text(), g.text());
  EXPECT_EQ(read.new_stream(), 2);
  Node c = random_bernoulli(read.find_leaf("seed"), {4}, 0.5);
  EXPECT_FALSE(same(c, random_bernoulli(read.find_leaf("seed"), {4}, 0.5)));
}

TEST(Random, Errors) {
  Graph g;
  Node seed = g.input("seed", DType::I64, {}), f = g.input("f", DType::F32, {}), v = g.input("v", DType::I64, {2});
  EXPECT_ERROR(random_uniform(f, {2}), "[random_uniform] the seed must be an integer scalar, got f32[]");
  EXPECT_ERROR(random_normal(v, {2}), "[random_normal] the seed must be an integer scalar, got i64[2]");
  EXPECT_ERROR(random_uniform(seed, {2}, 1, 0), "[random_uniform] got the range [1, 0), expected finite low <= high");
  EXPECT_ERROR(random_uniform(seed, {2}, 0, 1, DType::I32), "[random_uniform] gives floats, got i32");
  EXPECT_ERROR(random_uniform(seed, {-2}), "[random_uniform] got the shape [-2], expected sizes of 0 or more");
  EXPECT_ERROR(random_normal(seed, {2}, 0, -1), "[random_normal] got mean 0 and deviation -1");
  EXPECT_ERROR(random_bernoulli(seed, {2}, 1.5), "[random_bernoulli] got the probability 1.5, expected one in [0, 1]");
}
