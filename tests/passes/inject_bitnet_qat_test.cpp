// Contract section 3 and the values of numerics section 1. Numbers come from NumPy.
#include <gtest/gtest.h>

#include <random>

#include "ops/eval.h"
#include "passes/passes.h"
#include "rlx/op_attrs.h"
#include "rlx/ops.h"

using namespace rlx;

namespace {

Array f32(std::vector<float> values, Extents shape) { return Array(values, std::move(shape)); }
int count_ops(const Graph& graph, const OpDef& op) {
  int n = 0;
  for (int id = 0; id < graph.size(); ++id) n += graph.node(id).is(op);
  return n;
}
BitNetResult inject(const Graph& graph, const BitNetConfig& config = {}) {
  BitNetResult out = inject_bitnet_qat(graph, config);
  out.graph.verify();
  return out;
}
// The graph as it runs once gradients are taken.
Graph forward(const Graph& graph) { return drop_stop_gradients(collapse_straight_through(graph).graph).graph; }
Array value(Node node, const Feeds& feeds) { return evaluate(node, feeds); }

struct Chain {
  Graph graph;
  Node x = graph.input("x", DType::F32, {2, 4}), w1 = graph.param("w1", DType::F32, {4, 3}),
       head = graph.param("head", DType::F32, {3, 2});
  Chain() { graph.set_outputs({matmul(matmul(x, w1), head)}); }
};

// One matmul x[…,k]·w[k,n] and its quantised operands.
struct One {
  Graph graph;
  Node x, w;
  Graph injected, run;
  explicit One(Shape xs = {2, 4}, Shape ws = {4, 2}, BitNetConfig config = {}, DType dtype = DType::F32) {
    x = graph.input("x", dtype, std::move(xs)), w = graph.param("w", dtype, std::move(ws));
    graph.set_outputs({matmul(x, w).named("y")});
    injected = inject(graph, config).graph;
    run = forward(injected);
  }
  Node left() const { return run.outputs()[0].input(0); }
  Node right() const { return run.outputs()[0].input(1); }
};
// [sum of y, d / dx, d / dw]
Graph gradients(const One& one) {
  Graph g = one.injected;
  g.set_outputs({sum(g.outputs()[0], {0, 1})});
  return grad_with_loss(g, std::vector<std::string>{"x", "w"});
}
const std::vector<float> kX = {.5f, -1, .25f, 0, 1, 2, 3, 4}, kW = {.3f, -.1f, .05f, -.6f, .2f, .4f, -.35f, 0};

}  // namespace

// ---------------------------------------------------------------------------------------------- acceptance

TEST(InjectBitnetQat, TwoLayers) {
  Chain c;
  auto [graph, report] = inject(c.graph);
  EXPECT_EQ(report.ternary_weights, (std::vector<std::string>{"w1", "head"}));
  EXPECT_EQ(report.quantized_activations, 2);
  EXPECT_TRUE(report.skipped.empty());
  EXPECT_EQ(count_ops(graph, ops::stop_gradient), 4);
  ASSERT_EQ(graph.outputs().size(), 1u);
  EXPECT_EQ(graph.outputs()[0].shape(), (Shape{2, 2}));
}

TEST(InjectBitnetQat, KeepsTheHead) {
  Chain c;
  BitNetConfig config;
  config.keep_full_precision = {"head"};
  auto [graph, report] = inject(c.graph, config);
  EXPECT_EQ(report.ternary_weights, std::vector<std::string>{"w1"});
  EXPECT_EQ(report.quantized_activations, 1);
  ASSERT_EQ(report.skipped.size(), 1u);
  EXPECT_EQ(report.skipped[0].node, "matmul %4");
  EXPECT_EQ(report.skipped[0].reason, "head is kept in full precision");
}

TEST(InjectBitnetQat, ScoresAreNoWeights) {
  Graph graph;
  Node q = graph.input("q", DType::F32, {2, 4}), k = graph.input("k", DType::F32, {3, 4});
  graph.set_outputs({matmul(q, transpose(relu(k), {1, 0})).named("scores")});
  auto [out, report] = inject(graph);
  EXPECT_TRUE(same(out, graph));
  EXPECT_TRUE(report.ternary_weights.empty());
  EXPECT_EQ(report.quantized_activations, 0);
  ASSERT_EQ(report.skipped.size(), 1u);
  EXPECT_EQ(report.skipped[0].node, "scores");
  EXPECT_EQ(report.skipped[0].reason, "its weight operand is computed by relu %2, it is no leaf");
}

// ---------------------------------------------------------------------------------------------- values

TEST(InjectBitnetQat, CodesScalesAndResult) {
  One one;
  Feeds feeds{{"x", f32(kX, {2, 4})}, {"w", f32(kW, {4, 2})}};
  ASSERT_TRUE(one.right().is(ops::mul)) << one.run.text();
  EXPECT_EQ(value(one.right().input(0), feeds).to_vector<float>(), (std::vector<float>{1, 0, 0, -1, 1, 1, -1, 0}));
  EXPECT_EQ(value(one.right().input(1), feeds).at(0), .25);
  ASSERT_TRUE(one.left().is(ops::div));
  EXPECT_EQ(value(one.left().input(0), feeds).to_vector<float>(),
            (std::vector<float>{64, -127, 32, 0, 32, 64, 95, 127}));
  std::vector<float> y = value(one.run.outputs()[0], feeds).to_vector<float>();
  std::vector<double> wanted = {.18897638, .31299213, 0, .24409449};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(y[std::size_t(i)], wanted[std::size_t(i)], 1e-6) << i;
}

TEST(InjectBitnetQat, TiesGoToEven) {
  One one({1, 4}, {4, 1});
  Feeds feeds{{"x", f32({1, 1, 1, 1}, {1, 4})}, {"w", f32({.125f, .375f, .25f, .25f}, {4, 1})}};
  EXPECT_EQ(value(one.right().input(0), feeds).to_vector<float>(), (std::vector<float>{0, 1, 1, 1}));
}

TEST(InjectBitnetQat, ValuesInBetweenAreRounded) {
  One one({1, 9}, {9, 1});
  std::vector<float> ratios = {-1.2f, -1, -.9f, -.1f, 0, .1f, .9f, 1, 1.2f};
  Feeds feeds{{"x", f32(std::vector<float>(9, 1), {1, 9})}, {"w", f32(ratios, {9, 1})}};
  EXPECT_EQ(value(one.right().input(0), feeds).to_vector<float>(), (std::vector<float>{-1, -1, -1, 0, 0, 0, 1, 1, 1}));
}

TEST(InjectBitnetQat, ZerosStayZerosAndTheGradientFlows) {
  One one;
  Graph backward = gradients(one);
  Feeds feeds{{"x", f32(std::vector<float>(8, 0), {2, 4})},
              {"w", f32(std::vector<float>(8, 0), {4, 2})},
              {"d_output", Array::scalar(1, DType::F32)}};
  for (auto& out : evaluate(backward.outputs(), feeds))
    for (double v : out.to_vector<double>()) EXPECT_EQ(v, 0);
  // A zero weight under a real token: dW is the token; a zero token under a real weight: dx is the weight.
  feeds["x"] = f32(kX, {2, 4});
  for (double v : evaluate(backward.outputs()[2], feeds).to_vector<double>()) EXPECT_NE(v, 0);
  feeds["x"] = f32(std::vector<float>(8, 0), {2, 4}), feeds["w"] = f32(kW, {4, 2});
  EXPECT_EQ(evaluate(backward.outputs()[1], feeds).to_vector<float>(),
            (std::vector<float>{.25f, -.25f, .5f, -.25f, .25f, -.25f, .5f, -.25f}));
}

TEST(InjectBitnetQat, AZeroRowAmongOthers) {
  One one({2, 2}, {2, 1});
  Feeds feeds{{"x", f32({1, -2, 0, 0}, {2, 2})}, {"w", f32({1, 1}, {2, 1})}};
  EXPECT_EQ(value(one.left(), feeds).to_vector<float>()[2], 0);
  EXPECT_EQ(value(one.left().input(0), feeds).to_vector<float>(), (std::vector<float>{64, -127, 0, 0}));
  double s = value(one.left().input(1), feeds).at(1);
  EXPECT_GT(s, 0);
  EXPECT_TRUE(std::isfinite(s));
}

TEST(InjectBitnetQat, GradientsUseTheQuantisedOperands) {
  One one;
  Graph backward = gradients(one);
  Feeds feeds{{"x", f32(kX, {2, 4})}, {"w", f32(kW, {4, 2})}, {"d_output", Array::scalar(1, DType::F32)}};
  auto dx = evaluate(backward.outputs()[1], feeds).to_vector<double>(),
       dw = evaluate(backward.outputs()[2], feeds).to_vector<double>();
  std::vector<double> wanted_x = {.25, -.25, .5, -.25}, wanted_w = {1.51181102, 1.01574803, 3.24409449, 4};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(dx[i], wanted_x[i], 1e-6);
    EXPECT_NEAR(dw[2 * i], wanted_w[i], 1e-5);
    EXPECT_NEAR(dw[2 * i + 1], wanted_w[i], 1e-5);
  }
}

TEST(InjectBitnetQat, TheBackwardIsTheIdentityWhateverTheScale) {
  for (float size : {1e-7f, 1.f, 1e6f}) {
    One one({1, 4}, {4, 4});
    Node quantised = one.injected.outputs()[0].input(1);
    Nodes d = grad(quantised, {one.injected.find_leaf("w")}, one.injected.input("dy", DType::F32, {4, 4}));
    EXPECT_EQ(d[0].name(), "dy") << expression(d[0]) << size;
  }
}

// ---------------------------------------------------------------------------------------------- scale scopes, forms

TEST(InjectBitnetQat, PerChannelMatmul) {
  BitNetConfig config;
  config.weight_scale = ScaleScope::PerChannel;
  One one({2, 4}, {4, 2}, config);
  Feeds feeds{{"x", f32(kX, {2, 4})}, {"w", f32(kW, {4, 2})}};
  Array scale = value(one.right().input(1), feeds);
  EXPECT_EQ(scale.shape(), (Extents{1, 2}));
  EXPECT_EQ(scale.to_vector<float>(), (std::vector<float>{.22500001f, .275f}));
  EXPECT_EQ(value(one.right().input(0), feeds).to_vector<float>(), (std::vector<float>{1, 0, 0, -1, 1, 1, -1, 0}));
  One batched({3, 2, 4}, {3, 4, 5}, config);
  EXPECT_EQ(batched.right().input(1).shape(), (Shape{3, 1, 5}));
}

TEST(InjectBitnetQat, PerChannelThroughATranspose) {
  Graph graph;
  Node x = graph.input("x", DType::F32, {2, 4}), w = graph.param("w", DType::F32, {3, 4});
  graph.set_outputs({matmul(x, transpose(w, {1, 0}).named("wT"))});
  BitNetConfig config;
  config.weight_scale = ScaleScope::PerChannel;
  Graph run = forward(inject(graph, config).graph);
  Node moved = run.outputs()[0].input(1);
  ASSERT_TRUE(moved.is(ops::transpose));
  EXPECT_EQ(moved.name(), "wT");
  EXPECT_EQ(moved.input(0).input(1).shape(), (Shape{3, 1}));  // one for each of w's rows, which are the outputs
}

TEST(InjectBitnetQat, Convolutions) {
  Graph graph;
  Node x = graph.input("x", DType::F32, {1, 2, 5});
  Node w = graph.param("w", DType::F32, {2, 2, 2}), g = graph.param("g", DType::F32, {4, 1, 3}),
       t = graph.param("t", DType::F32, {2, 6, 2});
  Node y = conv(x, w);
  graph.set_outputs({y, conv(x, g, {.low = {1}, .high = {1}, .groups = 2}), conv_transpose(x, t)});
  BitNetConfig config;
  config.weight_scale = ScaleScope::PerChannel;
  auto [injected, report] = inject(graph, config);
  EXPECT_EQ(report.ternary_weights, (std::vector<std::string>{"w", "g", "t"}));
  EXPECT_EQ(report.quantized_activations, 0);
  Graph run = forward(injected);
  Node quantised = run.outputs()[0].input(1);
  Feeds feeds{{"w", f32({.3f, -.1f, .05f, -.6f, 2, 4, -3.5f, 0}, {2, 2, 2})}};
  EXPECT_EQ(value(quantised.input(1), feeds).to_vector<float>(), (std::vector<float>{.26250002f, 2.375f}));
  EXPECT_EQ(value(quantised.input(0), feeds).to_vector<float>(), (std::vector<float>{1, 0, 0, -1, 1, 1, -1, 0}));
  EXPECT_EQ(run.outputs()[1].input(1).input(1).shape(), (Shape{4, 1, 1}));
  EXPECT_EQ(run.outputs()[2].input(1).input(1).shape(), (Shape{1, 6, 1}));
}

TEST(InjectBitnetQat, DotGeneral) {
  Graph graph;
  Node x = graph.input("x", DType::F32, {2, 3, 4}), w = graph.param("w", DType::F32, {5, 4, 3});
  graph.set_outputs({dot_general(x, w, {}, {}, {1, 2}, {2, 1})});
  BitNetConfig config;
  config.weight_scale = ScaleScope::PerChannel;
  auto [injected, report] = inject(graph, config);
  EXPECT_EQ(report.ternary_weights, std::vector<std::string>{"w"});
  EXPECT_EQ(report.quantized_activations, 0);
  EXPECT_EQ(forward(injected).outputs()[0].input(1).input(1).shape(), (Shape{5, 1, 1}));
}

// ---------------------------------------------------------------------------------------------- leaves, sharing

TEST(InjectBitnetQat, SharedWeightsAndActivations) {
  Graph graph;
  Node x = graph.input("x", DType::F32, {2, 4}), u = graph.input("u", DType::F32, {3, 4});
  Node q = graph.param("q", DType::F32, {4, 4}), k = graph.param("k", DType::F32, {4, 4});
  graph.set_outputs({matmul(x, q), matmul(x, k), matmul(u, q)});
  auto [out, report] = inject(graph);
  EXPECT_EQ(report.ternary_weights, (std::vector<std::string>{"q", "k"}));
  EXPECT_EQ(report.quantized_activations, 3);
  EXPECT_EQ(count_ops(out, ops::stop_gradient), 4);  // x, u, q, k: each once
  EXPECT_TRUE(same(out.outputs()[0].input(0), out.outputs()[1].input(0)));
  EXPECT_TRUE(same(out.outputs()[0].input(1), out.outputs()[2].input(1)));
}

TEST(InjectBitnetQat, OneWeightInTwoLayouts) {
  Graph graph;
  Node x = graph.input("x", DType::F32, {2, 4}), w = graph.param("w", DType::F32, {4, 4});
  graph.set_outputs({matmul(x, w), matmul(x, transpose(w, {1, 0})),
                     matmul(x, reshape(expand(reshape(w, {1, 16}), {2, 16}), {2, 4, 4}))});
  for (auto scope : {ScaleScope::PerTensor, ScaleScope::PerChannel}) {
    BitNetConfig config;
    config.weight_scale = scope;
    auto [out, report] = inject(graph, config);
    EXPECT_EQ(report.ternary_weights, std::vector<std::string>{"w"});
    // One scale: quantised once. A scale a column: once for each layout.
    EXPECT_EQ(count_ops(out, ops::stop_gradient), scope == ScaleScope::PerTensor ? 2 : 4);
  }
}

TEST(InjectBitnetQat, ConstantsAndInputs) {
  Graph graph;
  Node x = graph.input("x", DType::F32, {1, 2});
  Node named = graph.constant(f32({1, 2, 3, 4}, {2, 2}), "table"), bare = graph.constant(f32({1, 2, 3, 5}, {2, 2}));
  Node fed = graph.input("fed", DType::F32, {2, 2});
  graph.set_outputs({matmul(x, named), matmul(x, bare), matmul(x, fed)});
  EXPECT_EQ(inject(graph).report.ternary_weights, (std::vector<std::string>{"table", "const#2", "fed"}));
  BitNetConfig config;
  config.weights_from_inputs = false;
  config.keep_full_precision = {"const#2"};
  auto report = inject(graph, config).report;
  EXPECT_EQ(report.ternary_weights, std::vector<std::string>{"table"});
  ASSERT_EQ(report.skipped.size(), 2u);
  EXPECT_EQ(report.skipped[1].reason, "fed is an input, and inputs are no weights here");
}

TEST(InjectBitnetQat, WeightsAlone) {
  Chain c;
  BitNetConfig config;
  config.quantize_activations = false;
  auto [graph, report] = inject(c.graph, config);
  EXPECT_EQ(report.quantized_activations, 0);
  EXPECT_EQ(count_ops(graph, ops::stop_gradient), 2);
  config.quantize_activations = true, config.quantize_weights = false;
  report = inject(c.graph, config).report;
  EXPECT_TRUE(report.ternary_weights.empty());
  EXPECT_EQ(report.quantized_activations, 2);
}

TEST(InjectBitnetQat, NamesOriginsAndOutputsStay) {
  Graph graph;
  graph.set_origin("model.py:5");
  Node x = graph.input("x", DType::F32, {2, 4}), w = graph.param("w", DType::F32, {4, 4});
  Node h = relu(matmul(x, w).named("linear")).named("hidden");
  graph.set_outputs({h, x, h});
  Graph out = inject(graph).graph;
  ASSERT_EQ(out.outputs().size(), 3u);
  EXPECT_TRUE(same(out.outputs()[0], out.outputs()[2]));
  EXPECT_EQ(out.outputs()[1].name(), "x");
  EXPECT_EQ(out.outputs()[0].name(), "hidden");
  EXPECT_EQ(out.outputs()[0].origins(), std::vector<std::string>{"model.py:5"});
  EXPECT_TRUE(same(out.find("linear"), out.outputs()[0].input(0)));
  EXPECT_EQ(out.find("linear").origins()[0], "model.py:5, by inject_bitnet_qat");
  EXPECT_TRUE(inject(out).report.ternary_weights.empty());  // a second time there is nothing to do
}

TEST(InjectBitnetQat, Errors) {
  Chain c;
  auto message = [&](const BitNetConfig& config) -> std::string {
    try {
      inject_bitnet_qat(c.graph, config);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  BitNetConfig config;
  config.keep_full_precision = {"haed"};
  EXPECT_EQ(message(config), "[inject_bitnet_qat] keep_full_precision: the graph has no leaf \"haed\"");
  config = {};
  config.weight_epsilon = 0;
  EXPECT_EQ(message(config), "[inject_bitnet_qat] got epsilon 0, expected a finite number above 0");
}

// ---------------------------------------------------------------------------------------------- bits

TEST(InjectBitnetQat, TheForwardIsWhatTernarizeGives) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 0.02f);
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (auto scope : {ScaleScope::PerTensor, ScaleScope::PerChannel})
      for (Extents shape : {Extents{1, 1}, {3, 5}, {64, 17}, {129, 70}, {2, 31, 9}, {7, 600}}) {
        BitNetConfig config;
        config.weight_scale = scope;
        Shape xs = to_shape(shape);
        xs[xs.size() - 1] = xs[xs.size() - 2], xs[xs.size() - 2] = 1;
        One one(xs, to_shape(shape), config, dtype);
        Array w(DType::F32, shape);
        for (float& v : w.values<float>()) v = normal(random);
        w = w.cast(dtype);
        Ternary wanted = ternarize(w, config);
        Node product = one.right();
        if (product.is(ops::cast)) product = product.input(0);  // to 16 bits
        ASSERT_TRUE(product.is(ops::mul)) << one.run.text();
        Feeds feeds{{"w", w}};
        auto values = evaluate(Nodes{product, product.input(0), product.input(1)}, feeds);
        EXPECT_EQ(values[1].cast(DType::I8).to_vector<int>(), wanted.codes.to_vector<int>());
        EXPECT_EQ(values[2].to_vector<float>(), wanted.scales.to_vector<float>());
        // γ·codes to the bit.
        for (std::int64_t i = 0; scope == ScaleScope::PerTensor && i < w.size(); ++i)
          ASSERT_EQ(float(values[0].at(i)), float(wanted.codes.at(i)) * float(wanted.scales.at(0)));
      }
}

TEST(InjectBitnetQat, AWidenedSixteenBitWeightKeepsItsScale) {
  Graph graph;
  Node x = graph.input("x", DType::F32, {1, 4}), w = graph.param("w", DType::BF16, {3, 4});
  graph.set_outputs({matmul(x, transpose(cast(w, DType::F32), {1, 0}))});
  Graph run = forward(inject(graph).graph);
  Node moved = run.outputs()[0].input(1);
  ASSERT_TRUE(moved.is(ops::transpose)) << run.text();
  ASSERT_TRUE(moved.input(0).is(ops::mul));  // no rounding to bf16 behind it
  Array weights =
      Array(std::vector<float>{.3f, -.1f, .05f, -.6f, .2f, .4f, -.35f, 0, 1, 2, 3, 4}, {3, 4}).cast(DType::BF16);
  EXPECT_EQ(evaluate(moved.input(0).input(1), {{"w", weights}}).at(0), ternarize(weights).scales.at(0));
}

TEST(InjectBitnetQat, F64StaysF64) {
  One one({2, 4}, {4, 2}, {}, DType::F64);
  EXPECT_EQ(one.run.outputs()[0].dtype(), DType::F64);
  EXPECT_EQ(one.right().dtype(), DType::F64);
}
