#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "message_of.h"
#include "ops/eval.h"
#include "quant/scaled.h"
#include "rlx/ops.h"
#include "rlx/session.h"
#include "rlx/transform.h"

namespace rlx {
namespace {

int number_of(const Graph& graph, const OpDef& op) {
  int n = 0;
  for (int id = 0; id < graph.size(); ++id) n += graph.node(id).is(op);
  return n;
}

Array normal(Extents shape, unsigned seed, float deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> d(0, deviation);
  Array out(DType::F32, std::move(shape));
  for (auto& v : out.values<float>()) v = d(random);
  return out;
}

std::vector<ScaledMatmulConfig> presets() {
  using C = ScaledMatmulConfig;
  return {C::fp8_e4m3(),
          C::mxfp8_e4m3(),
          C::mxfp6_e2m3(),
          C::mxfp4(),
          C::nvfp4(),
          C::of(Format::F8E5M2FNUZ, ScaleLayout::PerTensor),
          C::of(custom_format(3, 2), ScaleLayout::PerTensor)};
}

std::vector<Array> run(const Graph& graph, const ArrayMap& values, const std::string& device) {
  auto compiled = Session(Device{device}).compile(graph);
  ArrayMap inputs;
  for (auto& n : graph.inputs()) inputs[n.name()] = values.at(n.name());
  for (auto& n : graph.params()) compiled.set_param(n.name(), values.at(n.name()));
  return compiled.run(inputs);
}

std::string error_of(const Graph& graph, const ScaledMatmulConfig& config) {
  return message_of([&] { insert_scaled_matmul(graph, config); });
}

TEST(InsertScaledMatmul, OneProduct) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 4}), w = g.param("w", DType::F32, {4, 3});
  g.set_outputs({matmul(x, w).named("y")});
  auto [out, report] = insert_scaled_matmul(g, ScaledMatmulConfig::fp8_e4m3());
  out.verify();
  EXPECT_EQ(number_of(out, ops::matmul), 0);
  EXPECT_EQ(number_of(out, ops::scaled_matmul), 1);
  EXPECT_EQ(number_of(out, ops::scaled_quantize), 2);
  EXPECT_EQ(number_of(out, ops::scaled_quant_scale), 2);
  EXPECT_EQ(number_of(out, ops::transpose), 1);
  EXPECT_EQ(out.outputs()[0].type(), (Type{DType::F32, {2, 3}}));
  EXPECT_EQ(out.outputs()[0].name(), "y");
  EXPECT_EQ(report.rewritten, std::vector<std::string>{"y"});
  EXPECT_EQ(report.weights, std::vector<std::string>{"w"});
  EXPECT_EQ(report.quantized, 2);
  Graph read = Graph::parse(out.text());
  EXPECT_EQ(read.text(), out.text());
}

TEST(InsertScaledMatmul, ATensorOfTwoProductsIsQuantisedOnce) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 4}), w = g.param("w", DType::F32, {4, 3}), v = g.param("v", DType::F32, {4, 3});
  g.set_outputs({matmul(x, w) + matmul(x, v)});
  Graph out = insert_scaled_matmul(g).graph;
  EXPECT_EQ(number_of(out, ops::scaled_matmul), 2);
  EXPECT_EQ(number_of(out, ops::scaled_quantize), 3);
  EXPECT_EQ(number_of(out, ops::scaled_quant_scale), 3);
}

TEST(InsertScaledMatmul, ASharedWeightIsTransposedOnce) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 4}), y = g.input("y", DType::F32, {5, 4}), w = g.param("w", DType::F32, {4, 3});
  g.set_outputs({matmul(x, w), matmul(y, w)});
  Graph out = insert_scaled_matmul(g).graph;
  EXPECT_EQ(number_of(out, ops::transpose), 1);
  EXPECT_EQ(number_of(out, ops::scaled_quantize), 3);
}

TEST(InsertScaledMatmul, AWeightThatIsTransposedAlreadyIsTakenAsItIs) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 4}), w = g.param("w", DType::F32, {3, 4});
  g.set_outputs({matmul(x, transpose(w, {1, 0}))});
  Graph out = insert_scaled_matmul(g).graph;
  for (auto& n : out.outputs())
    EXPECT_TRUE(n.input(1).is(ops::scaled_quantize) && n.input(1).input(0).is(param_op)) << out.text();
}

TEST(InsertScaledMatmul, NvfpHasTensorScalesOfTheirOwn) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 4}), w = g.param("w", DType::F32, {4, 3});
  g.set_outputs({matmul(x, w)});
  Graph out = insert_scaled_matmul(g, ScaledMatmulConfig::nvfp4()).graph;
  EXPECT_EQ(number_of(out, ops::scaled_quant_tensor_scale), 2);
  EXPECT_EQ(out.outputs()[0].inputs().size(), 6u);
}

TEST(InsertScaledMatmul, BatchedRightOperandsStayUnlessAskedFor) {
  Graph g;
  Node a = g.input("a", DType::F32, {8, 2, 4}), b = g.input("b", DType::F32, {8, 4, 3});
  g.set_outputs({matmul(a, b)});
  auto [out, report] = insert_scaled_matmul(g);
  EXPECT_TRUE(same(out, g));
  ASSERT_EQ(report.skipped.size(), 1u);
  EXPECT_EQ(report.skipped[0].reason.find("its right operand b has 3 axes"), 0u) << report.skipped[0].reason;
  ScaledMatmulConfig config;
  config.batched = true;
  Graph scaled = insert_scaled_matmul(g, config).graph;
  EXPECT_EQ(number_of(scaled, ops::scaled_matmul), 1);
  ArrayMap values{{"a", normal({8, 2, 4}, 1)}, {"b", normal({8, 4, 3}, 2)}};
  for (auto device : {"reference", "cpu"}) {
    Array got = run(scaled, values, device)[0], want = run(g, values, device)[0];
    for (std::int64_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got.at(i), want.at(i), 0.4);
  }
}

TEST(InsertScaledMatmul, LeadingAxesAreFlattened) {
  Graph g;
  Dim batch = Dim::symbol("batch");
  Node x = g.input("x", DType::F32, {batch, 5, 4}), v = g.input("v", DType::F32, {4}),
       w = g.param("w", DType::F32, {4, 3});
  g.set_outputs({matmul(x, w), matmul(v, w)});
  Graph out = insert_scaled_matmul(g).graph;
  out.verify();
  EXPECT_EQ(number_of(out, ops::scaled_matmul), 2);
  EXPECT_EQ(out.outputs()[0].type(), g.outputs()[0].type());
  EXPECT_EQ(out.outputs()[1].type(), (Type{DType::F32, {3}}));
}

TEST(InsertScaledMatmul, WhatIsKeptAndWhatIsNoMatmulIsReported) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 4}), w = g.param("w", DType::F32, {4, 4}),
       head = g.param("head", DType::F32, {4, 3});
  Node wide = g.input("wide", DType::F64, {4, 4}), image = g.input("image", DType::F32, {1, 1, 4, 4});
  Node h = matmul(x, w).named("first");
  g.set_outputs({matmul(h, head).named("logits"), matmul(h, w).named("kept"), matmul(wide, wide).named("wide_product"),
                 conv(image, g.param("kernel", DType::F32, {1, 1, 2, 2})).named("conv")});
  ScaledMatmulConfig config;
  config.keep_full_precision = {"head", "kept"};
  auto report = insert_scaled_matmul(g, config).report;
  EXPECT_EQ(report.rewritten, std::vector<std::string>{"first"});
  std::map<std::string, std::string> skipped;
  for (auto& s : report.skipped) skipped[s.node] = s.reason;
  EXPECT_EQ(skipped["logits"], "head is kept in full precision");
  EXPECT_EQ(skipped["kept"], "it is kept in full precision");
  EXPECT_EQ(skipped["wide_product"], "its operand wide is f64");
  EXPECT_EQ(skipped["conv"], "conv is no matmul");
  config.keep_full_precision = {"nothing"};
  EXPECT_EQ(error_of(g, config),
            "[insert_scaled_matmul] keep_full_precision: the graph has no leaf or matmul \"nothing\"");
}

TEST(InsertScaledMatmul, FormatsThatDoNotFitAreErrors) {
  Graph g;
  g.set_outputs({matmul(g.input("x", DType::F32, {2, 4}), g.param("w", DType::F32, {4, 3}))});
  EXPECT_NE(error_of(g, ScaledMatmulConfig::of(Format::F8E4M3, ScaleLayout::Nvfp4))
                .find("nvfp4 holds f4e2m1 codes, not f8e4m3"),
            std::string::npos);
  EXPECT_NE(error_of(g, ScaledMatmulConfig::of(Format::Int8, ScaleLayout::PerTensor)).find("int8 is no float format"),
            std::string::npos);
}

TEST(InsertScaledMatmul, SixteenBitMatmulsKeepTheirDtype) {
  Graph g;
  Node x = g.input("x", DType::BF16, {2, 4}), w = g.param("w", DType::BF16, {4, 3});
  g.set_outputs({matmul(x, w)});
  Graph out = insert_scaled_matmul(g).graph;
  EXPECT_EQ(out.outputs()[0].dtype(), DType::BF16);
  EXPECT_EQ(number_of(out, ops::scaled_matmul), 1);
}

Array transposed(const Array& x) {
  std::int64_t rows = x.shape()[0], columns = x.shape()[1];
  Array out(DType::F32, {columns, rows});
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      out.values<float>()[std::size_t(j * rows + i)] = x.values<float>()[std::size_t(i * columns + j)];
  return out;
}

// got [m, n] is a [m, k] · b [n, k]ᵀ within so many roundings of the terms' magnitudes.
void expect_product(const Array& got, const Array& a, const Array& b, double roundings) {
  std::int64_t m = a.shape()[0], n = b.shape()[0], k = a.shape()[1];
  ASSERT_EQ(got.shape(), (Extents{m, n}));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double want = 0, size = 0;
      for (std::int64_t t = 0; t < k; ++t) {
        double term = a.at(i * k + t) * b.at(j * k + t);
        want += term, size += std::fabs(term);
      }
      EXPECT_NEAR(got.at(i * n + j), want, size * roundings * 0x1p-24);
    }
}

// What is left of x in a format.
Array coded(const Array& x, Format format, ScaleLayout layout) {
  return scaled_dequantize(scaled_quantize(x, format, layout));
}

// The value of the product of what was quantised, in f64, and its gradient.
TEST(InsertScaledMatmul, ValuesAndGradientsAreThoseOfTheDequantisedOperands) {
  for (auto& config : presets()) {
    SCOPED_TRACE(std::string(to_string(config.lhs_format)) + " " + field_text(config.layout));
    Graph g;
    Node x = g.input("x", DType::F32, {17, 33}), w = g.param("w", DType::F32, {33, 15}),
         c = g.input("c", DType::F32, {17, 15});
    g.set_outputs({sum(matmul(x, w) * c, {0, 1}), matmul(x, w)});
    Graph scaled = insert_scaled_matmul(g, config).graph;
    Graph back = grad_with_loss(scaled, {"x", "w"});
    back.verify();
    Array vx = normal({17, 33}, 3), vw = normal({33, 15}, 4), vc = normal({17, 15}, 5);
    ArrayMap values{{"x", vx}, {"w", vw}, {"c", vc}, {"d_output", Array::scalar(1, DType::F32)}};
    Array qx = coded(vx, config.lhs_format, config.layout);
    Array qw = coded(transposed(vw), config.rhs_format, config.layout);  // [15, 33]
    for (auto device : {"reference", "cpu"}) {
      SCOPED_TRACE(device);
      expect_product(run(scaled, values, device)[1], qx, qw, 36);
      auto gradients = run(back, values, device);
      expect_product(gradients[1], vc, transposed(qw), 20);
      expect_product(gradients[2], transposed(qx), transposed(vc), 20);
    }
  }
}

// With a quantised cotangent both products take what its codes stand for.
TEST(InsertScaledMatmul, QuantisedGradients) {
  for (auto config : presets()) {
    config.quantize_gradient = true;
    Graph g;
    Node x = g.input("x", DType::F32, {6, 40}), w = g.param("w", DType::F32, {40, 5}),
         c = g.input("c", DType::F32, {6, 5});
    g.set_outputs({sum(matmul(x, w) * c, {0, 1})});
    Graph back = grad_with_loss(insert_scaled_matmul(g, config).graph, {"x", "w"});
    back.verify();
    Array vx = normal({6, 40}, 3), vw = normal({40, 5}, 4), vc = normal({6, 5}, 5);
    Array qw = coded(transposed(vw), config.rhs_format, config.layout);
    Array qx = coded(vx, config.lhs_format, config.layout);
    ArrayMap values{{"x", vx}, {"w", vw}, {"c", vc}, {"d_output", Array::scalar(1, DType::F32)}};
    for (auto device : {"reference", "cpu"}) {
      auto gradients = run(back, values, device);
      expect_product(gradients[1], coded(vc, config.gradient_format, config.layout), transposed(qw), 16);
      // In the other product its blocks lie along the other axis.
      expect_product(gradients[2], transposed(qx), coded(transposed(vc), config.gradient_format, config.layout), 16);
    }
  }
}

TEST(InsertScaledMatmul, CpuGivesTheCodesAndScalesOfTheReference) {
  for (auto& config : presets())
    for (auto shape : {Extents{7, 33}, Extents{1, 1}, Extents{3, 130}}) {
      Graph g;
      Node x = g.input("x", DType::F32, to_shape(shape)), w = g.param("w", DType::F32, {shape[1], 2});
      g.set_outputs({matmul(x, w)});
      Graph scaled = insert_scaled_matmul(g, config).graph;
      Nodes inner(scaled.outputs()[0].inputs());
      scaled.set_outputs(inner);
      Array vx = normal(shape, 7, 100);
      ArrayMap values{{"x", vx}, {"w", normal({shape[1], 2}, 8)}};
      auto cpu = run(scaled, values, "cpu"), reference = run(scaled, values, "reference");
      for (std::size_t i = 0; i < cpu.size(); ++i) EXPECT_TRUE(identical(cpu[i], reference[i])) << inner[i].text();
      ScaledTensor host = scaled_quantize(vx, config.lhs_format, config.layout);
      EXPECT_TRUE(identical(host.codes, reference[0]));
      EXPECT_TRUE(identical(host.scale, reference[2]));
    }
}

// Every float format in each layout that holds it.
std::vector<ScaledMatmulConfig> all_formats() {
  std::vector<ScaledMatmulConfig> out{ScaledMatmulConfig::nvfp4()};
  for (int i = 0; i < kFormatCount; ++i)
    for (auto layout : {ScaleLayout::PerTensor, ScaleLayout::Mx})
      for (auto rule : {MxRule::Ceil, MxRule::Floor}) {
        bool given = info(Format(i)).is_float() && Format(i) != Format::E8M0;
        if (!given || (layout == ScaleLayout::PerTensor && rule == MxRule::Floor)) continue;
        out.push_back(ScaledMatmulConfig::of(Format(i), layout));
        out.back().rule = rule;
      }
  return out;
}

TEST(InsertScaledMatmul, SpecialBlocksAreTheSameOnEveryDevice) {
  const float kInf = INFINITY, kNan = NAN;
  for (auto& config : all_formats())
    for (float special : {0.f, -0.f, kNan, kInf, -kInf, 1e-45f, 1e-39f, 1e-30f, 3e38f}) {
      Array vx = normal({2, 40}, 9);
      vx.values<float>()[3] = special;
      for (std::size_t i = 40; i < 80; ++i) vx.values<float>()[i] = special;
      Graph g;
      Node x = g.input("x", DType::F32, {2, 40}), tensor_scale = none;
      if (config.layout == ScaleLayout::Nvfp4) tensor_scale = scaled_quant_tensor_scale(x);
      Node scale = scaled_quant_scale(x, config.lhs_format, config.layout, config.rule, tensor_scale);
      Node codes = scaled_quantize(x, scale, config.lhs_format, config.layout, tensor_scale);
      g.set_outputs({codes, scale, scaled_dequantize(codes, scale, config.lhs_format, config.layout, tensor_scale)});
      auto cpu = run(g, {{"x", vx}}, "cpu"), reference = run(g, {{"x", vx}}, "reference");
      ScaledTensor host = scaled_quantize(vx, config.lhs_format, config.layout, config.rule);
      Array value = scaled_dequantize(host);
      EXPECT_TRUE(identical(host.codes, reference[0])) << special;
      for (std::int64_t i = 0; i < 80; ++i) {
        bool nan = std::isnan(reference[2].at(i));
        EXPECT_EQ(cpu[0].at(i), reference[0].at(i)) << special << " " << i;
        EXPECT_TRUE(nan ? std::isnan(cpu[2].at(i)) && std::isnan(value.at(i))
                        : cpu[2].at(i) == reference[2].at(i) && value.at(i) == reference[2].at(i))
            << special << " " << i;
      }
      if (special == 0) {
        EXPECT_EQ(reference[2].at(41), 0);
      }
      if (std::isnan(special)) {
        EXPECT_TRUE(std::isnan(reference[2].at(41)));
      }
    }
}

TEST(InsertScaledMatmul, AProductWithoutTermsIsZero) {
  for (auto& config : presets()) {
    Graph g;
    g.set_outputs({matmul(g.input("x", DType::F32, {4, 0}), g.param("w", DType::F32, {0, 3}))});
    Graph scaled = insert_scaled_matmul(g, config).graph;
    ArrayMap values{{"x", Array(DType::F32, {4, 0})}, {"w", Array(DType::F32, {0, 3})}};
    for (auto device : {"reference", "cpu"}) {
      Array y = run(scaled, values, device)[0];
      EXPECT_EQ(y.shape(), (Extents{4, 3}));
      for (std::int64_t i = 0; i < y.size(); ++i) EXPECT_EQ(y.at(i), 0);
    }
  }
}

// What depends on params alone is a kept step of the report, and runs when one is set.
TEST(InsertScaledMatmul, ARunQuantisesActivationsOnly) {
  Graph g;
  Node x = g.input("x", DType::F32, {5, 64}), w = g.param("w", DType::F32, {64, 32});
  g.set_outputs({matmul(x, w)});
  auto compiled = Session(Device::cpu()).compile(insert_scaled_matmul(g, ScaledMatmulConfig::mxfp8_e4m3()).graph);
  Array vx = normal({5, 64}, 1), vw = normal({64, 32}, 2), other = normal({64, 32}, 3);
  compiled.set_param("w", vw);
  Array first = compiled.run({{"x", vx}})[0];
  std::string report = compiled.report();
  auto lines = [&](const std::string& text) {
    int n = 0;
    for (auto at = report.find(text); at != report.npos; at = report.find(text, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(lines("  kept scaled_quantize"), 1) << report;
  EXPECT_EQ(lines("  kept scaled_quant_scale"), 1) << report;
  EXPECT_EQ(lines("  scaled_quantize"), 1) << report;
  EXPECT_EQ(lines("  scaled_quant_scale"), 1) << report;
  EXPECT_EQ(lines("(interpreted)"), 0) << report;
  EXPECT_EQ(lines("gemm bf16"), 1) << report;
  compiled.set_param("w", other);
  Array second = compiled.run({{"x", vx}})[0];
  EXPECT_FALSE(identical(first, second));
  compiled.set_param("w", vw);
  EXPECT_TRUE(identical(compiled.run({{"x", vx}})[0], first));
}

TEST(InsertScaledMatmul, FakeQuantisedOperandsAreLeftAlone) {
  Graph g;
  g.set_outputs({matmul(g.input("x", DType::F32, {2, 4}), g.param("w", DType::F32, {4, 3})).named("y")});
  Graph ternary = inject_bitnet_qat(g).graph;
  auto [out, report] = insert_scaled_matmul(ternary);
  EXPECT_TRUE(same(out, ternary));
  ASSERT_EQ(report.skipped.size(), 1u);
  EXPECT_NE(report.skipped[0].reason.find("fake-quantised already"), std::string::npos);
  // The other way round there is no matmul left.
  Graph scaled = insert_scaled_matmul(g).graph;
  EXPECT_TRUE(same(inject_bitnet_qat(scaled).graph, scaled));
}

}  // namespace
}  // namespace rlx
