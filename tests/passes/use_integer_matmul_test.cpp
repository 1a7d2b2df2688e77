#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ops/eval.h"
#include "passes/passes.h"
#include "passes/pipeline.h"
#include "rlx/op_attrs.h"
#include "rlx/ops.h"

using namespace rlx;

namespace {

Array random_values(std::mt19937& random, const Type& type, double size) {
  std::normal_distribution<double> normal(0, size);
  Array out(DType::F64, to_extents(type.shape));
  for (double& v : out.values<double>()) v = normal(random);
  return out.cast(type.dtype);
}

// The quantised graph as compiled, before and after the pass; with f64 leaves to compare with.
struct Quantised {
  Graph before, after;
  int fired = 0;
  explicit Quantised(const Graph& graph, BitNetConfig config = {}) {
    before = drop_stop_gradients(collapse_straight_through(inject_bitnet_qat(graph, config).graph).graph).graph;
    Rewritten out = use_integer_matmul(before);
    out.graph.verify();
    after = out.graph, fired = out.fired["use_integer_matmul"];
  }
};

// The codes, scales and operands are those of f32; their product is summed in f64.
std::vector<double> exact_product(const Graph& before, const Feeds& feeds) {
  Node y = before.outputs()[0];
  auto operands = evaluate(Nodes{y.input(0), y.input(1)}, feeds);
  Graph wide;
  Node a = wide.constant(operands[0].cast(DType::F64)), b = wide.constant(operands[1].cast(DType::F64));
  return evaluate(matmul(a, b), {}).to_vector<double>();
}

void expect_equal(const Graph& graph, const BitNetConfig& config = {}) {
  Quantised q(graph, config);
  EXPECT_EQ(q.fired, 1) << explain_integer_matmul(q.before.outputs()[0]);
  std::mt19937 random(3);
  for (double size : {1e-3, 1.0, 300.0}) {
    Feeds feeds;
    for (Node leaf : graph.inputs()) feeds.emplace(leaf.name(), random_values(random, leaf.type(), size));
    for (Node leaf : graph.params()) feeds.emplace(leaf.name(), random_values(random, leaf.type(), 0.02));
    auto wanted = exact_product(q.before, feeds);
    auto got = evaluate(q.after.outputs()[0], feeds).to_vector<double>();
    ASSERT_EQ(got.size(), wanted.size());
    double most = 0;
    for (double v : wanted) most = std::max(most, std::fabs(v));
    // The operands' own rounding to f32 cancels in the sum, so the bound is that of the largest result.
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], wanted[i], 4e-7 * most + 1e-7 * std::fabs(wanted[i])) << i;
  }
}

struct Linear {
  Graph graph;
  Linear(Shape x, Shape w, bool transposed = false) {
    Node left = graph.input("x", DType::F32, std::move(x)), right = graph.param("w", DType::F32, std::move(w));
    graph.set_outputs({matmul(left, transposed ? transpose(right, {1, 0}) : right)});
  }
};
BitNetConfig per_channel() {
  BitNetConfig config;
  config.weight_scale = ScaleScope::PerChannel;
  return config;
}

}  // namespace

TEST(UseIntegerMatmul, ComputesOnTheCodes) {
  Quantised q(Linear({2, 64}, {48, 64}, true).graph);
  Node y = q.after.outputs()[0];
  ASSERT_TRUE(y.is(ops::div)) << q.after.text();
  Node product = y.input(0).input(0);
  ASSERT_TRUE(product.is(ops::cast));
  EXPECT_EQ(product.input(0).dtype(), DType::I32);
  EXPECT_EQ(product.input(0).input(0).dtype(), DType::I8);
  EXPECT_EQ(product.input(0).input(1).dtype(), DType::I8);
  EXPECT_EQ(explain_integer_matmul(q.before.outputs()[0]),
            "use_integer_matmul at matmul " + q.before.outputs()[0].text() + " fires");
}

TEST(UseIntegerMatmul, EqualsTheProductInF64) {
  for (auto& config : {BitNetConfig{}, per_channel()}) {
    expect_equal(Linear({5, 64}, {64, 33}).graph, config);
    expect_equal(Linear({5, 64}, {33, 64}, true).graph, config);
    expect_equal(Linear({2, 3, 100}, {100, 7}).graph, config);
    expect_equal(Linear({2, 3, 100}, {2, 100, 7}).graph, config);
    expect_equal(Linear({100}, {100, 7}).graph, config);
    expect_equal(Linear({3, 100}, {100}).graph, config);
    expect_equal(Linear({100}, {100}).graph, config);
    expect_equal(Linear({Dim(4), 1}, {1, 1}).graph, config);
  }
}

TEST(UseIntegerMatmul, WeightsThatAreCodesAlready) {
  Graph graph;
  Node x = graph.input("x", DType::F32, {3, 40}), codes = graph.param("codes", DType::I8, {8, 40}),
       scale = graph.param("scale", DType::F32, {8, 1});
  Node s = 127 / maximum(max(abs(x), {-1}, true), 1e-5);
  graph.set_outputs({matmul(clamp(round(x * s), -128, 127) / s, transpose(cast(codes, DType::F32) * scale, {1, 0}))});
  Rewritten out = use_integer_matmul(graph);
  ASSERT_EQ(out.fired["use_integer_matmul"], 1) << explain_integer_matmul(graph.outputs()[0]);
  std::mt19937 random(5);
  Array c(DType::I8, {8, 40});
  for (auto& v : c.values<std::int8_t>()) v = std::int8_t(random() % 256);
  Feeds feeds{
      {"x", random_values(random, x.type(), 1)}, {"codes", c}, {"scale", random_values(random, scale.type(), 1)}};
  auto wanted = exact_product(graph, feeds), got = evaluate(out.graph.outputs()[0], feeds).to_vector<double>();
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-3 + 1e-6 * std::fabs(wanted[i]));
}

TEST(UseIntegerMatmul, WhatIsNotFiniteStaysSo) {
  Quantised q(Linear({4, 8}, {8, 2}).graph);
  std::mt19937 random(9);
  Feeds feeds{{"x", random_values(random, {DType::F32, {4, 8}}, 1)},
              {"w", random_values(random, {DType::F32, {8, 2}}, 1)}};
  feeds["x"].values<float>()[3] = NAN;
  feeds["x"].values<float>()[12] = INFINITY;
  std::fill_n(feeds["x"].values<float>().begin() + 24, 8, 0.f);
  auto wanted = evaluate(q.before.outputs()[0], feeds).to_vector<double>(),
       got = evaluate(q.after.outputs()[0], feeds).to_vector<double>();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(wanted[i]) && std::isnan(got[i])) << i;
  for (std::size_t i = 4; i < 8; ++i) EXPECT_NEAR(got[i], wanted[i], 1e-5) << i;
  for (float bad : {NAN, INFINITY}) {
    feeds["w"].values<float>()[5] = bad;
    for (Node y : {q.before.outputs()[0], q.after.outputs()[0]})
      for (double v : evaluate(y, feeds).to_vector<double>()) EXPECT_TRUE(std::isnan(v));
  }
}

TEST(UseIntegerMatmul, SaysWhyNot) {
  auto why = [](const Graph& graph) {
    EXPECT_TRUE(use_integer_matmul(graph).fired.empty());
    std::string text = explain_integer_matmul(graph.outputs()[0]);
    return text.substr(text.find("fire: ") + 6);
  };
  EXPECT_EQ(why(Linear({2, 4}, {4, 3}).graph), "its left operand is input, not codes / scale");
  BitNetConfig weights_only;
  weights_only.quantize_activations = false;
  EXPECT_EQ(why(Quantised(Linear({2, 4}, {4, 3}).graph, weights_only).after),
            "its left operand is input, not codes / scale");
  BitNetConfig activations_only;
  activations_only.quantize_weights = false;
  EXPECT_EQ(why(Quantised(Linear({2, 4}, {4, 3}).graph, activations_only).after),
            "its right operand is made by param, not codes · scale");
  Dim k = Dim::symbol("k");
  EXPECT_EQ(why(Quantised(Linear({2, k}, {k, 3}).graph).after), "the contracted size k is symbolic");
  EXPECT_EQ(why(Quantised(Linear({1, 1 << 25}, {1 << 25, 1}).graph).after),
            "a sum of 33554432 products may not fit i32");
  Graph narrow;
  narrow.set_outputs({matmul(narrow.input("x", DType::BF16, {2, 4}), narrow.param("w", DType::BF16, {4, 3}))});
  EXPECT_EQ(why(Quantised(narrow).after), "it gives bf16, not f32");
  Graph fixed;
  Node x = fixed.input("x", DType::F32, {2, 4}), s = fixed.input("s", DType::F32, {2, 1});
  fixed.set_outputs(
      {matmul(clamp(round(x * s), -128, 127) / s, cast(fixed.param("w", DType::I8, {4, 3}), DType::F32))});
  EXPECT_EQ(why(fixed), "the scale of its left operand is not c / max(max |x|, epsilon) of each row");
}

TEST(UseIntegerMatmul, InThePipelineOfATrainingStep) {
  Graph graph;
  Node x = graph.input("x", DType::F32, {4, 16}), w1 = graph.param("w1", DType::F32, {8, 16}),
       w2 = graph.param("w2", DType::F32, {2, 8});
  Node h = silu(matmul(x, transpose(w1, {1, 0})));
  graph.set_outputs({sum(matmul(h, transpose(w2, {1, 0})), {0, 1})});
  Graph step = grad_with_loss(inject_bitnet_qat(graph).graph, {"w1", "w2"});
  PipelineResult out = run_passes(step, cpu_passes([](Node) { return false; }), {.name = "step", .verify = true});
  int fired = 0;
  for (auto& pass : out.passes)
    fired += pass.fired.contains("use_integer_matmul") ? pass.fired.at("use_integer_matmul") : 0;
  EXPECT_EQ(fired, 2) << to_string(out.passes);
  std::mt19937 random(11);
  Feeds feeds{{"x", random_values(random, x.type(), 1)},
              {"w1", random_values(random, w1.type(), 1)},
              {"w2", random_values(random, w2.type(), 1)},
              {"d_output", Array::scalar(1, DType::F32)}};
  auto wanted = evaluate(step.outputs(), feeds), got = evaluate(out.graph.outputs(), feeds);
  for (std::size_t o = 0; o < wanted.size(); ++o)
    for (std::int64_t i = 0; i < wanted[o].size(); ++i)
      EXPECT_NEAR(got[o].at(i), wanted[o].at(i), 2e-5 * (1 + std::fabs(wanted[o].at(i))));
}
