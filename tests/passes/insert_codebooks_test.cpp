// Codebook layers in place of matmuls: what is replaced and what stays, names, values, and the params' first values.
#include <gtest/gtest.h>

#include <cmath>

#include "message_of.h"
#include "ops/eval.h"
#include "rlx/op_attrs.h"
#include "rlx/ops.h"
#include "rlx/session.h"
#include "rlx/transform.h"

using namespace rlx;

namespace {

constexpr std::int64_t kIn = 8, kOut = 6;
const CodebookConfig kSmall{.entry_dim = 2, .num_entries = 4};

int count_ops(const Graph& graph, const OpDef& op) {
  int n = 0;
  for (int id = 0; id < graph.size(); ++id) n += graph.node(id).is(op);
  return n;
}
CodebookResult insert(const Graph& graph, const CodebookConfig& config = kSmall) {
  CodebookResult out = insert_codebooks(graph, config);
  out.graph.verify();
  EXPECT_EQ(Graph::parse(out.graph.text()).text(), out.graph.text());
  return out;
}
std::string only_reason(const CodebookResult& result) {
  EXPECT_EQ(result.report.skipped.size(), 1u);
  return result.report.skipped.empty() ? "" : result.report.skipped[0].reason;
}

// A weight [n, k] of 4 different vectors of 2, which a codebook holds exactly.
Array weight(std::int64_t n = kOut, std::int64_t k = kIn) {
  Array out(DType::F32, {n, k});
  for (std::int64_t i = 0; i < n * k; ++i)
    out.values<float>()[std::size_t(i)] = float(std::cos(double((i / 2 * 3 + 1) % 4 * 2 + i % 2)));
  return out;
}
Array transposed(const Array& x) {
  Graph g;
  return evaluate(transpose(g.input("x", x.type()), {1, 0}), {{"x", x}});
}
Array activations(Extents shape) {
  Array out(DType::F32, std::move(shape));
  for (std::int64_t i = 0; i < out.size(); ++i) out.values<float>()[std::size_t(i)] = float(std::sin(0.17 * double(i)));
  return out;
}
Feeds feeds_of(const CodebookResult& result, const ArrayMap& weights, Feeds feeds) {
  for (auto& [name, value] : codebook_params(weights, result.report)) feeds.emplace(name, value);
  return feeds;
}

struct Layer {
  Graph graph;
  Node x = graph.input("x", DType::F32, {5, kIn});
  Node w;
};
Layer in_out() {
  Layer out;
  out.w = out.graph.param("w", DType::F32, {kIn, kOut});
  out.graph.set_outputs({matmul(out.x, out.w).named("y")});
  return out;
}
Layer out_in() {
  Layer out;
  out.w = out.graph.param("w", DType::F32, {kOut, kIn});
  out.graph.set_outputs({matmul(out.x, transpose(out.w, {1, 0})).named("y")});
  return out;
}

}  // namespace

TEST(InsertCodebooks, BothLayouts) {
  for (bool behind_transpose : {false, true}) {
    Layer layer = behind_transpose ? out_in() : in_out();
    CodebookResult result = insert(layer.graph);
    ASSERT_EQ(result.report.replaced.size(), 1u);
    auto& r = result.report.replaced[0];
    EXPECT_EQ(r.weight, "w");
    EXPECT_EQ(r.n, kOut);
    EXPECT_EQ(r.k, kIn);
    EXPECT_EQ(r.entry_dim, 2);
    EXPECT_EQ(r.num_entries, 4);
    EXPECT_EQ(r.out_axis, behind_transpose ? 0 : 1);
    EXPECT_EQ(r.bytes_before, kOut * kIn * 4);
    EXPECT_EQ(r.bytes_after, kOut * kIn / 2 + 4 * 2 * 4);
    EXPECT_TRUE(result.report.skipped.empty());
    EXPECT_EQ(count_ops(result.graph, ops::matmul), 0);
    EXPECT_EQ(count_ops(result.graph, ops::transpose), 0);
    EXPECT_EQ(count_ops(result.graph, ops::synth_matmul), 1);
    EXPECT_FALSE(bool(result.graph.find_leaf("w")));
    EXPECT_EQ(result.graph.find_leaf("w.indices").type(), (Type{DType::U8, {kOut, kIn / 2}}));
    EXPECT_EQ(result.graph.find_leaf("w.codebook").type(), (Type{DType::F32, {4, 2}}));
    EXPECT_EQ(result.graph.outputs()[0].name(), "y");
    Array w = behind_transpose ? weight() : transposed(weight()), x = activations({5, kIn});
    Array expected = evaluate(layer.graph.outputs()[0], {{"x", x}, {"w", w}});
    Array got = evaluate(result.graph.outputs()[0], feeds_of(result, {{"w", w}}, {{"x", x}}));
    for (std::int64_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got.at(i), expected.at(i), 1e-6);
  }
}

TEST(InsertCodebooks, NamesAndOriginsStay) {
  Graph g;
  g.set_origin("model.py:7");
  Node x = g.input("x", DType::F32, {Dim::symbol("batch"), kIn});
  Node h = relu(matmul(x, g.param("w", DType::F32, {kIn, kOut})).named("hidden")).named("active");
  g.set_outputs({h, sum(h, {0})});
  CodebookResult result = insert(g);
  Node y = result.graph.find("hidden");
  EXPECT_TRUE(y.is(ops::synth_matmul));
  EXPECT_EQ(y.origins(), std::vector<std::string>{"model.py:7, by insert_codebooks"});
  EXPECT_EQ(result.graph.find_leaf("w.codebook").origins(),
            std::vector<std::string>{"model.py:7, by insert_codebooks"});
  EXPECT_EQ(result.graph.find("active").origins(), std::vector<std::string>{"model.py:7"});
  ASSERT_EQ(result.graph.outputs().size(), 2u);
  EXPECT_EQ(result.graph.outputs()[0].name(), "active");
}

TEST(InsertCodebooks, ASharedWeightIsOnePair) {
  Graph g;
  Node w = g.param("w", DType::F32, {kIn, kIn}), x = g.input("x", DType::F32, {2, 3, kIn});
  g.set_outputs({matmul(matmul(x, w), w)});
  CodebookResult result = insert(g);
  EXPECT_EQ(result.report.replaced.size(), 1u);
  EXPECT_EQ(count_ops(result.graph, ops::synth_matmul), 2);
  EXPECT_EQ(result.graph.params().size(), 2u);
}

TEST(InsertCodebooks, WhatIsKeptOrNotAskedFor) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, kIn});
  Node h =
      matmul(matmul(x, g.param("block.0.up", DType::F32, {kIn, kIn})), g.param("block.0.down", DType::F32, {kIn, kIn}));
  g.set_outputs({matmul(h, g.param("head", DType::F32, {kIn, kIn})).named("logits")});
  CodebookConfig config = kSmall;
  config.keep = {"head"};
  CodebookResult result = insert(g, config);
  EXPECT_EQ(result.report.replaced.size(), 2u);
  EXPECT_EQ(result.report.replaced[1].weight, "block.0.down");
  EXPECT_EQ(only_reason(result), "head is kept");
  EXPECT_EQ(result.report.skipped[0].node, "logits");
  config.weights = {"*.up", "block.?.d*n"}, config.keep = {};
  result = insert(g, config);
  EXPECT_EQ(result.report.replaced.size(), 2u);
  EXPECT_TRUE(result.report.skipped.empty());
  config.weights = {"block.1.*"};
  EXPECT_NE(message_of([&] { insert_codebooks(g, config); }).find("weights: the graph has no param \"block.1.*\""),
            std::string::npos);
  config = kSmall, config.keep = {"embedding"};
  EXPECT_NE(message_of([&] { insert_codebooks(g, config); }).find("keep: the graph has no param \"embedding\""),
            std::string::npos);
}

TEST(InsertCodebooks, AWeightWithAnotherUseStays) {
  auto tied = [](auto&& use, const std::string& reason) {
    Layer layer = out_in();
    Node y = layer.graph.outputs()[0];
    layer.graph.set_outputs({y, use(layer)});
    CodebookResult result = insert(layer.graph);
    EXPECT_TRUE(result.report.replaced.empty());
    std::string reasons;
    for (auto& s : result.report.skipped) reasons += s.reason + "; ";
    EXPECT_NE(reasons.find(reason), std::string::npos) << reasons;
    EXPECT_TRUE(same(result.graph, layer.graph));
  };
  tied([](Layer& l) { return gather(l.w, l.graph.input("tokens", DType::I32, {3}), 0).named("embedding"); },
       "w is read by embedding too");
  tied([](Layer& l) { return l.w; }, "w is an output of the graph too");
  tied([](Layer& l) { return transpose(l.w, {1, 0}); }, "w is an output of the graph too");
  tied([](Layer& l) { return matmul(l.w, l.graph.input("v", DType::F32, {kIn})).named("left"); },
       "w is read by left too");
  Graph g;  // one way and the other
  Node w = g.param("w", DType::F32, {kIn, kIn}), x = g.input("x", DType::F32, {2, kIn});
  g.set_outputs({matmul(matmul(x, w), transpose(w, {1, 0}))});
  CodebookResult result = insert(g);
  EXPECT_TRUE(result.report.replaced.empty());
  EXPECT_EQ(result.report.skipped.size(), 2u);
  EXPECT_EQ(result.report.skipped[0].reason, "w is used in both layouts");
}

TEST(InsertCodebooks, WhatCannotBe) {
  auto reason = [](auto&& build, CodebookConfig config = kSmall) {
    Graph g;
    g.set_outputs({build(g)});
    CodebookResult result = insert(g, config);
    EXPECT_TRUE(result.report.replaced.empty());
    return only_reason(result);
  };
  auto x = [](Graph g, Shape shape = {2, kIn}) { return g.input("x", DType::F32, std::move(shape)); };
  EXPECT_EQ(reason([&](Graph g) {
              return matmul(x(g), relu(g.input("k", DType::F32, {kIn, 3})).named("r"));
            }),
            "its weight operand is r, no param");
  EXPECT_EQ(reason([&](Graph g) {
              return matmul(x(g), g.input("y", DType::F32, {kIn, 3}));
            }),
            "its weight operand is y, no param");
  EXPECT_EQ(reason([&](Graph g) {
              return matmul(x(g, {2, 3, kIn}), g.param("w", DType::F32, {2, kIn, 4}));
            }),
            "w is [2,8,4], not a matrix of known sizes");
  EXPECT_EQ(reason([&](Graph g) {
              return matmul(x(g), g.param("w", DType::F32, {kIn, Dim::symbol("n")}));
            }),
            "w is [8,n], not a matrix of known sizes");
  EXPECT_EQ(reason(
                [&](Graph g) {
                  return matmul(x(g), g.param("w", DType::F32, {kIn, 6}));
                },
                {.entry_dim = 3, .num_entries = 4}),
            "entry_dim 3 does not divide the 8 inputs of w");
  EXPECT_EQ(reason(
                [&](Graph g) {
                  return matmul(x(g), g.param("w", DType::F32, {kIn, 6}));
                },
                {.entry_dim = 2, .num_entries = 25}),
            "w has 24 vectors of 2, fewer than num_entries 25");
  EXPECT_EQ(reason([&](Graph g) {
              return matmul(cast(x(g), DType::F32), g.param("w", DType::I8, {kIn, 6}));
            }),
            "w is i8, not a float");
  EXPECT_EQ(reason([&](Graph g) {
              return conv(x(g, {1, 2, 8}), g.param("w", DType::F32, {4, 2, 3}));
            }),
            "w is read by a conv, and only matmuls are replaced");
  for (CodebookConfig config :
       {CodebookConfig{.entry_dim = 0}, CodebookConfig{.num_entries = 257}, CodebookConfig{.num_entries = 0}})
    EXPECT_NE(message_of([&] { insert_codebooks(in_out().graph, config); }).find("[insert_codebooks] got"),
              std::string::npos);
}

TEST(InsertCodebooks, ThroughCastsInNarrowTypes) {
  for (DType d : {DType::BF16, DType::F16}) {
    Graph g;
    Node x = g.input("x", d, {5, kIn}), w = g.param("w", DType::F32, {kOut, kIn});
    g.set_outputs({matmul(x, transpose(cast(w, d), {1, 0}))});
    CodebookResult result = insert(g);
    ASSERT_EQ(result.report.replaced.size(), 1u);
    EXPECT_EQ(result.graph.outputs()[0].type(), (Type{d, {5, kOut}}));
    Array xs = activations({5, kIn}).cast(d);
    Array expected = evaluate(g.outputs()[0], {{"x", xs}, {"w", weight()}});
    Array got = evaluate(result.graph.outputs()[0], feeds_of(result, {{"w", weight()}}, {{"x", xs}}));
    for (std::int64_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got.at(i), expected.at(i), d == DType::BF16 ? 0.03 : 0.004);
  }
  Graph g;  // f32 activations, a bf16 weight: the product is f32
  g.set_outputs({matmul(g.input("x", DType::BF16, {2, kIn}), g.param("w", DType::F32, {kIn, kOut}))});
  EXPECT_EQ(insert(g).graph.outputs()[0].dtype(), DType::F32);
}

// A gradient step on a codebook: it is of the right shape, and the cpu device needs the interpreter for nothing.
TEST(InsertCodebooks, TheResultTrains) {
  Layer layer = out_in();
  CodebookResult result = insert(layer.graph);
  Graph g = result.graph;
  Node y = g.outputs()[0];
  g.set_outputs({sum(y * y, {0, 1})});
  Graph back = grad_with_loss(g, {"w.codebook", "x"});
  back.verify();
  EXPECT_EQ(back.outputs()[1].type(), (Type{DType::F32, {4, 2}}));
  auto compiled = Session(Device::cpu()).compile(back);
  for (auto& [name, value] : codebook_params({{"w", weight()}}, result.report)) compiled.set_param(name, value);
  ArrayMap inputs{{"x", activations({5, kIn})}, {"d_output", Array::scalar(1, DType::F32)}};
  auto got = compiled.run(inputs);
  EXPECT_NE(compiled.report().find("(0 interpreted)"), std::string::npos) << compiled.report();
  Feeds feeds = feeds_of(result, {{"w", weight()}}, {inputs.begin(), inputs.end()});
  auto expected = evaluate(back.outputs(), feeds);
  for (std::size_t k = 0; k < got.size(); ++k)
    for (std::int64_t i = 0; i < got[k].size(); ++i)
      EXPECT_NEAR(got[k].at(i), expected[k].at(i), 2e-5 * std::max(1.0, std::fabs(expected[k].at(i))))
          << "output " << k;
}

TEST(CodebookParams, DependOnTheirOwnWeightAndTheSeed) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 16});
  g.set_outputs({matmul(x, g.param("a", DType::F32, {16, 16})), matmul(x, g.param("b", DType::F32, {16, 16}))});
  CodebookReport both = insert(g).report, one = both;
  one.replaced.erase(one.replaced.begin());
  Array a = activations({16, 16});
  auto all = codebook_params({{"a", a}, {"b", a}}, both), alone = codebook_params({{"b", a}}, one);
  EXPECT_EQ(all.size(), 4u);
  EXPECT_TRUE(identical(all.at("b.codebook"), alone.at("b.codebook")));
  EXPECT_TRUE(identical(all.at("b.indices"), alone.at("b.indices")));
  EXPECT_FALSE(identical(codebook_params({{"b", a}}, one, 2).at("b.codebook"), alone.at("b.codebook")));
}

TEST(CodebookParams, SayWhatIsMissing) {
  CodebookReport report = insert(in_out().graph).report;
  EXPECT_NE(message_of([&] { codebook_params({}, report); }).find("there is no weight \"w\""), std::string::npos);
  EXPECT_NE(message_of([&] {
              codebook_params({{"w", weight()}}, report);
            }).find("got f32[6,8], expected floats [8,6]"),
            std::string::npos);
}
