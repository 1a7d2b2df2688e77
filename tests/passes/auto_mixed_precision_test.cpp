// Contract section 6: each policy as text, what is kept, order among the passes, and numbers against f32 and PyTorch.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "message_of.h"
#include "passes/passes.h"
#include "rlx/op_attrs.h"
#include "rlx/ops.h"
#include "rlx/session.h"
#include "rlx/transform.h"
#include "train/model.h"

using namespace rlx;

namespace {

constexpr DType kNarrow[] = {DType::BF16, DType::F16};

MixedPrecisionConfig config_of(PrecisionPolicy policy, DType dtype = DType::BF16) {
  MixedPrecisionConfig c;
  c.policy = policy, c.dtype = dtype;
  return c;
}
// The pass, checked: it verifies, and doing it again changes nothing.
MixedPrecisionResult lower(const Graph& graph, const MixedPrecisionConfig& config = {}) {
  MixedPrecisionResult out = auto_mixed_precision(graph, config);
  out.graph.verify();
  MixedPrecisionResult again = auto_mixed_precision(out.graph, config);
  EXPECT_TRUE(same(again.graph, out.graph)) << "not idempotent:\n" << out.graph.text() << "became\n" << again.graph.text();
  EXPECT_TRUE(again.report.lowered.empty());
  EXPECT_EQ(again.report.casts, 0);
  return out;
}
std::string text_of(const Graph& graph) {
  std::string text = graph.text();
  return text.substr(text.find('\n') + 1);
}
int count_ops(const Graph& graph, const OpDef& op) {
  int n = 0;
  for (int id = 0; id < graph.size(); ++id) n += graph.node(id).is(op);
  return n;
}
std::string reason_of(const MixedPrecisionReport& report, const std::string& node) {
  for (auto& k : report.kept)
    if (k.node == node) return k.reason;
  return "not kept";
}

// softmax(relu(x·w + b) / 10)
Graph layer() {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 4}), w = g.param("w", DType::F32, {4, 3}), b = g.param("b", DType::F32, {3});
  g.set_outputs({softmax(relu(matmul(x, w).named("y") + b) / 8)});
  return g;
}
const std::string kLeaves =
    "%0 \"x\" : f32[2,4] = input() {type = f32[2,4]}\n"
    "%1 \"w\" : f32[4,3] = param() {type = f32[4,3]}\n"
    "%2 \"b\" : f32[3] = param() {type = f32[3]}\n";

ModelConfig small_model(const std::string& precision = "f32") {
  ModelConfig c;
  c.vocab_size = 48, c.context_length = 12, c.embedding_length = 32, c.feed_forward_length = 48, c.block_count = 2;
  c.head_count = 2, c.head_count_kv = 1, c.precision = precision;
  return c;
}
Array numbers(Extents shape, std::uint32_t seed, float scale) {
  Array out(DType::F32, std::move(shape));
  for (float& v : out.values<float>()) {
    seed = seed * 1664525u + 1013904223u;
    v = (float(seed >> 8) / 16777216.0f - 0.5f) * scale;
  }
  return out;
}
Array labels(Extents shape, int classes) {
  Array out(DType::I32, std::move(shape));
  std::int32_t i = 3;
  for (std::int32_t& v : out.values<std::int32_t>()) v = (i = (i * 7 + 5) % classes);
  return out;
}

// A classifier of images: convolutions, a transposed one too, biases, both pools, a mean over the picture.
Graph small_net() {
  Graph g;
  Node x = g.input("x", DType::F32, {3, 2, 9, 9}), y = g.input("labels", DType::I32, {3});
  auto p = [&](const char* name, Shape shape) { return g.param(name, DType::F32, std::move(shape)); };
  ConvAttrs pad, stride;
  pad.low = pad.high = {1, 1};
  stride.strides = {2, 2}, stride.low = stride.high = {1, 1};
  Node h = relu(conv(x, p("c1", {8, 2, 3, 3}), pad) + p("b1", {8, 1, 1}));
  h = relu(conv(h, p("c2", {16, 8, 3, 3}), stride) + p("b2", {16, 1, 1}));
  PoolAttrs pool;
  pool.kernel = {2, 2}, pool.strides = {1, 1};
  h = avg_pool(relu(conv_transpose(max_pool(h, pool), p("c3", {16, 8, 2, 2}))), pool);
  Node logits = matmul(mean(h, {2, 3}), p("fc", {8, 5})) + p("b4", {5});
  g.set_outputs({cross_entropy(logits, y)});
  return g;
}
ArrayMap net_feeds() { return {{"x", numbers({3, 2, 9, 9}, 5, 2)}, {"labels", labels({3}, 5)}}; }

Array param_value(Node param) {
  std::uint32_t seed = 1;
  for (char c : param.name()) seed = seed * 31 + std::uint32_t(c);
  return numbers(to_extents(param.shape()), seed, 0.6f);
}
std::vector<std::string> param_names(const Graph& g) {
  std::vector<std::string> out;
  for (Node p : g.params())
    if (is_float(p.dtype())) out.push_back(p.name());
  return out;
}

struct Trained {
  std::vector<Array> values;
  std::string report;
};
// [loss, gradients] of a graph whose first output is a loss.
Trained train(const Graph& graph, const ArrayMap& feeds, const Device& device, const Tensors& params, double scale = 1) {
  Graph g = collapse_straight_through(grad_with_loss(graph, param_names(graph))).graph;
  CompiledGraph c = Session(device).compile(g);
  for (Node p : graph.params()) {
    auto it = params.find(p.name());
    c.set_param(p.name(), it != params.end() ? it->second : param_value(p));
  }
  ArrayMap in = feeds;
  in.emplace("d_output", Array::scalar(scale, DType::F32));
  Trained out{c.run(in), c.report()};
  for (std::size_t i = 1; i < out.values.size(); ++i) {
    EXPECT_EQ(out.values[i].dtype(), DType::F32);
    for (float& v : out.values[i].values<float>()) v = float(v / scale);
  }
  return out;
}
// ‖a − b‖ / ‖b‖ of all gradients together.
double difference(const std::vector<Array>& a, const std::vector<Array>& b) {
  double over = 0, under = 0;
  EXPECT_EQ(a.size(), b.size());
  for (std::size_t i = 1; i < a.size(); ++i)
    for (std::int64_t j = 0; j < a[i].size(); ++j) {
      over += std::pow(a[i].at(j) - b[i].at(j), 2);
      under += std::pow(b[i].at(j), 2);
    }
  return std::sqrt(over / under);
}
// How many steps the cpu device leaves to the interpreter; nothing on another device.
std::string interpreted(const std::string& report) {
  auto end = report.find(" interpreted)"), start = report.rfind('(', end);
  return end == report.npos ? "" : report.substr(start + 1, end - start - 1);
}

}  // namespace

// ---------------------------------------------------------------------------------------------- policies

TEST(MixedPrecision, AutoMixed) {
  auto [graph, report] = lower(layer());
  EXPECT_EQ(text_of(graph), kLeaves +
                                "%3 : bf16[2,4] = cast(%0) {dtype = bf16} # \"by auto_mixed_precision\"\n"
                                "%4 : bf16[4,3] = cast(%1) {dtype = bf16} # \"by auto_mixed_precision\"\n"
                                "%5 \"y\" : bf16[2,3] = matmul(%3, %4) {dtype = any}\n"
                                "%6 : bf16[3] = cast(%2) {dtype = bf16} # \"by auto_mixed_precision\"\n"
                                "%7 : bf16[2,3] = add(%5, %6)\n"
                                "%8 : bf16[2,3] = relu(%7)\n"
                                "%9 : bf16[] = constant() {value = bf16[] 0x0041 (8)}\n"
                                "%10 : bf16[2,3] = div(%8, %9)\n"
                                "%11 : f32[2,3] = cast(%10) {dtype = f32} # \"by auto_mixed_precision\"\n"
                                "%12 : f32[2,3] = softmax(%11) {axis = -1}\n"
                                "outputs %12\n");
  EXPECT_EQ(report.casts, 4);
  EXPECT_EQ(report.count(AmpClass::Compute), 1);
  EXPECT_EQ(report.count(AmpClass::Elementwise), 3);
  ASSERT_EQ(report.lowered.size(), 4u);
  EXPECT_EQ(report.lowered[0].node, "y");
  EXPECT_EQ(report.lowered[0].dtype, DType::BF16);
  ASSERT_EQ(report.kept.size(), 1u);
  EXPECT_EQ(report.kept[0].node, "softmax %8");
  EXPECT_EQ(report.kept[0].reason, "reduction in f32");
}

TEST(MixedPrecision, Conservative) {
  auto [graph, report] = lower(layer(), config_of(PrecisionPolicy::AutoMixedConservative, DType::F16));
  EXPECT_EQ(text_of(graph), kLeaves +
                                "%3 : f16[2,4] = cast(%0) {dtype = f16} # \"by auto_mixed_precision\"\n"
                                "%4 : f16[4,3] = cast(%1) {dtype = f16} # \"by auto_mixed_precision\"\n"
                                "%5 \"y\" : f16[2,3] = matmul(%3, %4) {dtype = any}\n"
                                "%6 : f32[2,3] = cast(%5) {dtype = f32} # \"by auto_mixed_precision\"\n"
                                "%7 : f32[2,3] = add(%6, %2)\n"
                                "%8 : f32[2,3] = relu(%7)\n"
                                "%9 : f32[] = constant() {value = f32[] 0x00000041 (8)}\n"
                                "%10 : f32[2,3] = div(%8, %9)\n"
                                "%11 : f32[2,3] = softmax(%10) {axis = -1}\n"
                                "outputs %11\n");
  EXPECT_EQ(report.lowered.size(), 1u);
  EXPECT_EQ(report.kept.size(), 4u);
  // A product of a product needs no cast back and forth.
  Graph two;
  Node x = two.input("x", DType::F32, {2, 2});
  two.set_outputs({matmul(matmul(x, x), x)});
  EXPECT_EQ(lower(two, config_of(PrecisionPolicy::AutoMixedConservative)).report.casts, 2);
}

TEST(MixedPrecision, AlwaysF16AndItsWayBack) {
  auto [graph, report] = lower(layer(), config_of(PrecisionPolicy::AlwaysF16));
  EXPECT_EQ(text_of(graph), kLeaves +
                                "%3 : f16[2,4] = cast(%0) {dtype = f16} # \"by auto_mixed_precision\"\n"
                                "%4 : f16[4,3] = cast(%1) {dtype = f16} # \"by auto_mixed_precision\"\n"
                                "%5 \"y\" : f16[2,3] = matmul(%3, %4) {dtype = any}\n"
                                "%6 : f16[3] = cast(%2) {dtype = f16} # \"by auto_mixed_precision\"\n"
                                "%7 : f16[2,3] = add(%5, %6)\n"
                                "%8 : f16[2,3] = relu(%7)\n"
                                "%9 : f16[] = constant() {value = f16[] 0x0048 (8)}\n"
                                "%10 : f16[2,3] = div(%8, %9)\n"
                                "%11 : f16[2,3] = softmax(%10) {axis = -1}\n"
                                "%12 : f32[2,3] = cast(%11) {dtype = f32} # \"by auto_mixed_precision\"\n"
                                "outputs %12\n");
  EXPECT_TRUE(report.kept.empty());
  Graph f32 = layer();
  EXPECT_TRUE(same(lower(f32, config_of(PrecisionPolicy::AlwaysF32)).graph, f32));
  // A graph written in f16 computes in f32 and gives f16.
  Graph half;
  Node x = half.input("x", DType::F16, {2, 2});
  half.set_outputs({relu(matmul(x, x)), sum(x, {0})});
  auto raised = lower(half, config_of(PrecisionPolicy::AlwaysF32));
  EXPECT_EQ(raised.report.casts, 3);  // x once, two outputs
  EXPECT_EQ(raised.report.lowered.size(), 3u);
  for (Node out : raised.graph.outputs()) {
    EXPECT_EQ(out.dtype(), DType::F16);
    EXPECT_EQ(out.input(0).dtype(), DType::F32);
  }
}

TEST(MixedPrecision, Bf16TakesAllButReductions) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 4});
  g.set_outputs({(x * 3).named("scaled"), sum(x * 3, {1}).named("total"), exp(x).named("power")});
  auto [graph, report] = lower(g, config_of(PrecisionPolicy::Bf16));
  EXPECT_EQ(graph.find("scaled").dtype(), DType::BF16);
  EXPECT_EQ(graph.find("total").dtype(), DType::F32);
  EXPECT_EQ(graph.find("total").input(0).dtype(), DType::F32);
  EXPECT_EQ(graph.find("power").dtype(), DType::F32);
  EXPECT_EQ(report.lowered.size(), 1u);
}

TEST(MixedPrecision, CustomClassesAndOverrides) {
  MixedPrecisionConfig c = config_of(PrecisionPolicy::Custom);
  c.custom = {.compute = DType::F16, .reduction = DType::F32, .elementwise = DType::F32, .movement = DType::Any};
  c.overrides = {{"y", DType::BF16}};
  Graph g;
  Node x = g.input("x", DType::F32, {2, 2});
  g.set_outputs({relu(matmul(matmul(x, x).named("y"), x).named("z")).named("r")});
  Graph out = lower(g, c).graph;
  EXPECT_EQ(out.find("y").dtype(), DType::BF16);
  EXPECT_EQ(out.find("z").dtype(), DType::F16);
  EXPECT_EQ(out.find("r").dtype(), DType::F32);
}

// ---------------------------------------------------------------------------------------------- what it must not do

TEST(MixedPrecision, OneCastATensorAndDtype) {
  Graph g;
  Node x = g.input("x", DType::F32, {4, 4}), w = g.param("w", DType::F32, {4, 4});
  Node turned = transpose(w, {1, 0});
  g.set_outputs({matmul(x, w), matmul(x, turned), matmul(turned, x), relu(turned)});
  auto [graph, report] = lower(g);
  EXPECT_EQ(report.casts, 2 + 3);  // x and w, and the three outputs in bf16
  int of_w = 0;
  for (int id = 0; id < graph.size(); ++id)
    of_w += graph.node(id).is(ops::cast) && graph.node(id).input(0).name() == "w";
  EXPECT_EQ(of_w, 1);
}

TEST(MixedPrecision, IntegersBoolAndF64StayAsTheyAre) {
  Graph g;
  Node i = g.input("i", DType::I32, {3}), codes = g.input("codes", DType::U8, {3, 3}), d = g.input("d", DType::F64, {3, 3}),
       table = g.param("table", DType::F32, {5, 3}), x = g.input("x", DType::F32, {3, 3});
  Node wide = matmul(d, d).named("wide");
  Node mask = (x > 0).named("mask");
  Node taken = gather(table, i, 0).named("taken");
  Node ints = matmul(cast(codes, DType::I32), cast(codes, DType::I32)).named("ints");
  g.set_outputs({wide, where(mask, matmul(taken, x), 0), ints, cast(x, DType::F64) + d});
  auto [graph, report] = lower(g);
  EXPECT_EQ(graph.find("wide").dtype(), DType::F64);
  EXPECT_EQ(reason_of(report, "wide"), "f64 stays f64");
  EXPECT_EQ(graph.find("mask").dtype(), DType::Bool);
  EXPECT_EQ(graph.find("mask").input(0).dtype(), DType::F32);
  EXPECT_EQ(graph.find("taken").input(0).name(), "table");  // rows are taken of the master table, then cast
  EXPECT_EQ(graph.find("taken").input(1).dtype(), DType::I32);
  EXPECT_EQ(graph.find("ints").dtype(), DType::I32);
  for (Node leaf : graph.inputs()) EXPECT_EQ(leaf.dtype(), g.find_leaf(leaf.name()).dtype());
  for (Node leaf : graph.params()) EXPECT_EQ(leaf.dtype(), DType::F32);
  for (std::size_t k = 0; k < g.outputs().size(); ++k) EXPECT_EQ(graph.outputs()[k].type(), g.outputs()[k].type());
}

TEST(MixedPrecision, NumbersTakeTheDtypeUnlessItCannotHoldThem) {
  auto dtype_of_sum = [](double number, DType dtype) {
    Graph g;
    Node x = g.input("x", DType::F32, {2, 2});
    g.set_outputs({(matmul(x, x) + number).named("sum")});
    return lower(g, config_of(PrecisionPolicy::AutoMixed, dtype)).graph.find("sum").dtype();
  };
  EXPECT_EQ(dtype_of_sum(0.1, DType::F16), DType::F16);
  EXPECT_EQ(dtype_of_sum(1e-8, DType::F16), DType::F32);  // 0 in f16
  EXPECT_EQ(dtype_of_sum(1e6, DType::F16), DType::F32);   // infinite
  EXPECT_EQ(dtype_of_sum(1e-8, DType::BF16), DType::BF16);
}

TEST(MixedPrecision, KeepsByName) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 4}), w = g.param("w", DType::F32, {4, 4}), head = g.param("head", DType::F32, {6, 4});
  Node h = matmul(relu(matmul(x, w)), w).named("hidden");
  g.set_outputs({matmul(h, transpose(head, {1, 0})).named("logits")});
  MixedPrecisionConfig c;
  c.keep = {"head"};
  auto [graph, report] = lower(g, c);
  EXPECT_EQ(graph.find("logits").dtype(), DType::F32);
  EXPECT_EQ(reason_of(report, "logits"), "reads head, which is kept");
  EXPECT_EQ(graph.find("hidden").dtype(), DType::BF16);
  c.keep = {"hidden"};
  auto by_node = lower(g, c);
  EXPECT_EQ(reason_of(by_node.report, "hidden"), "kept by its name");
  EXPECT_EQ(by_node.graph.find("hidden").input(0).dtype(), DType::F32);
}

TEST(MixedPrecision, NamesOriginsAndStreamsStay) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 2}), seed = g.input("seed", DType::U64, {});
  g.set_origin("model.cpp:7");
  Node y = matmul(x, x).named("y");
  g.set_origin("");
  g.set_outputs({y + random_uniform(seed, {2, 2})});
  Graph out = lower(g).graph;
  EXPECT_EQ(out.find("y").origins(), std::vector<std::string>{"model.cpp:7"});
  EXPECT_EQ(out.find("y").input(0).origins(), std::vector<std::string>{"by auto_mixed_precision"});
  EXPECT_EQ(out.new_stream(), g.new_stream());
}

TEST(MixedPrecision, SaysWhatIsWrong) {
  Graph g = layer();
  auto with = [&](auto&& change) {
    MixedPrecisionConfig c;
    change(c);
    return message_of([&] { auto_mixed_precision(g, c); });
  };
  EXPECT_EQ(with([](auto& c) { c.dtype = DType::F32; }),
            "[auto_mixed_precision] the dtype of products is f32, expected bf16 or f16");
  EXPECT_EQ(with([](auto& c) { c.keep = {"nobody"}; }),
            "[auto_mixed_precision] keep: the graph has no node \"nobody\"");
  EXPECT_EQ(with([](auto& c) { c.overrides = {{"none", DType::F16}}; }),
            "[auto_mixed_precision] overrides: the graph has no node \"none\"");
  EXPECT_EQ(with([](auto& c) { c.overrides = {{"y", DType::I8}}; }),
            "[auto_mixed_precision] overrides[\"y\"] is i8, expected f32, f16 or bf16");
  EXPECT_EQ(with([](auto& c) { c.policy = PrecisionPolicy::Custom, c.custom.reduction = DType::F64; }),
            "[auto_mixed_precision] custom.reduction is f64, expected f32, f16 or bf16");
}

TEST(MixedPrecision, EveryOpHasAClass) {
  auto is = [](const OpDef& op, AmpClass amp) { return amp_class(op) == amp; };
  for (const OpDef* op : builtin_ops()) EXPECT_FALSE(is(*op, AmpClass::ByKind)) << op->name;
  for (const OpDef* op : {&ops::matmul, &ops::dot_general, &ops::conv, &ops::conv_backward_weight, &ops::conv_transpose, &ops::attention})
    EXPECT_TRUE(is(*op, AmpClass::Compute)) << op->name;
  for (const OpDef* op : {&ops::sum, &ops::mean, &ops::softmax, &ops::layer_norm, &ops::rms_norm, &ops::cross_entropy,
                          &ops::logsumexp, &ops::exp, &ops::pow, &ops::relu2, &ops::scatter})
    EXPECT_TRUE(is(*op, AmpClass::Reduction)) << op->name;
  for (const OpDef* op : {&ops::add, &ops::relu, &ops::silu, &ops::rope, &ops::activation_backward, &ops::where})
    EXPECT_TRUE(is(*op, AmpClass::Elementwise)) << op->name;
  for (const OpDef* op : {&ops::transpose, &ops::gather, &ops::concat, &ops::stop_gradient, &ops::max_pool})
    EXPECT_TRUE(is(*op, AmpClass::Movement)) << op->name;
  for (const OpDef* op : {&ops::cast, &ops::argsort, &ops::random_normal, &ops::one_hot})
    EXPECT_TRUE(is(*op, AmpClass::Boundary)) << op->name;
}

// ---------------------------------------------------------------------------------------------- among other passes

namespace {

struct Order {
  std::vector<std::string> passes;
  const char* error = "";  // a part of its message
};
Graph run_pass(const std::string& pass, const Graph& g) {
  if (pass == "qat") return inject_bitnet_qat(g, {.keep_full_precision = {"token_embd.weight"}}).graph;
  if (pass == "amp") return auto_mixed_precision(g).graph;
  if (pass == "codebooks")
    return insert_codebooks(g, {.num_entries = 16, .weights = {"blk.*.ffn_*.weight"}, .keep = {"blk.*norm.weight"}}).graph;
  if (pass == "scaled") return insert_scaled_matmul(g, ScaledMatmulConfig::mxfp8_e4m3()).graph;
  if (pass == "grad") return grad_with_loss(g, param_names(g));
  throw InternalError("no pass " + pass);
}

}  // namespace

TEST(MixedPrecision, OrdersOfPasses) {
  const char *late = "[inject_bitnet_qat] got a graph with gradients", *late_scaled = "[insert_scaled_matmul] got a graph with gradients",
             *late_codebooks = "[insert_codebooks] got a graph with gradients";
  for (auto& order : std::vector<Order>{
           {{"qat", "amp", "grad"}},
           {{"amp", "qat", "grad"}},
           {{"qat", "grad", "amp"}},
           {{"amp", "grad", "amp"}},
           {{"qat", "amp", "grad", "amp"}},
           {{"amp", "grad", "qat"}, late},
           {{"grad", "amp", "qat"}, late},
           {{"grad", "qat", "amp"}, late},
           {{"scaled", "amp", "grad"}},
           {{"amp", "scaled", "grad"}},
           {{"scaled", "grad", "amp"}},
           {{"qat", "scaled", "amp", "grad"}},
           {{"scaled", "qat", "amp", "grad"}},
           {{"qat", "scaled", "grad", "amp"}},
           {{"amp", "qat", "scaled", "grad"}},
           {{"codebooks", "amp", "grad"}},
           {{"amp", "codebooks", "grad"}},
           {{"codebooks", "grad", "amp"}},
           {{"codebooks", "qat", "amp", "grad"}},
           {{"codebooks", "scaled", "amp", "grad"}},
           {{"codebooks", "qat", "scaled", "grad", "amp"}},
           {{"grad", "codebooks"}, late_codebooks},
           {{"amp", "grad", "scaled"}, late_scaled},
           {{"grad", "scaled", "amp"}, late_scaled},
       }) {
    Graph g = training_graph(small_model(), 2, 12);
    std::string name, message;
    for (auto& pass : order.passes) {
      name += " " + pass;
      message = message_of([&] { g = run_pass(pass, g); });
      if (message != "no error") break;
      EXPECT_NO_THROW(g.verify()) << name;
    }
    if (*order.error) EXPECT_NE(message.find(order.error), std::string::npos) << name << ": " << message;
    else EXPECT_EQ(message, "no error") << name;
  }
}

TEST(MixedPrecision, QuantisationStaysExact) {
  Graph g;
  Node x = g.input("x", DType::F32, {3, 4}), w = g.param("w", DType::F32, {4, 5}), head = g.param("head", DType::F32, {5, 2});
  Node y = matmul(relu(matmul(x, w)), head);
  g.set_outputs({sum(y * y, {0, 1})});
  Graph qat = inject_bitnet_qat(g, {.keep_full_precision = {"head"}}).graph;
  auto [amp, report] = lower(qat);
  // What the pass of quantisation made is there as before, and its product; the head is lowered.
  EXPECT_EQ(count_ops(amp, ops::round), 2);
  for (int id = 0; id < amp.size(); ++id)
    EXPECT_TRUE(!amp.node(id).is(ops::round) || amp.node(id).dtype() == DType::F32);
  EXPECT_EQ(count_ops(amp, ops::matmul), 2);
  EXPECT_EQ(report.count(AmpClass::Compute), 1);
  int quantised = 0;
  for (auto& k : report.kept) quantised += k.reason == "a part of inject_bitnet_qat's quantisation";
  EXPECT_GT(quantised, 10);
  Array wv = numbers({4, 5}, 1, 2), hv = numbers({5, 2}, 2, 2);
  for (Device device : {Device::reference(), Device::cpu()}) {
    ArrayMap feeds{{"x", numbers({3, 4}, 3, 2)}};
    Trained a = train(qat, feeds, device, {{"w", wv}, {"head", hv}}), b = train(amp, feeds, device, {{"w", wv}, {"head", hv}});
    EXPECT_NEAR(b.values[0].at(0), a.values[0].at(0), 1e-2 * a.values[0].at(0));
    EXPECT_LT(difference(b.values, a.values), 2e-2);
  }
  // The gradients' own products with quantised operands stay in f32 too.
  auto after = lower(grad_with_loss(qat, {"w", "head"}));
  int products = 0;
  for (auto& k : after.report.kept) products += k.reason == "an operand is quantised";
  EXPECT_EQ(products, 2);  // d w, and d x, which nobody reads
}

TEST(MixedPrecision, LeavesScaledMatmulAlone) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 4}), w = g.param("w", DType::F32, {4, 3}), v = g.param("v", DType::F32, {3, 3});
  g.set_outputs({matmul(relu(matmul(x, w)), v)});
  for (auto& config : {ScaledMatmulConfig::fp8_e4m3(), ScaledMatmulConfig::mxfp4(), ScaledMatmulConfig::nvfp4()}) {
    ScaledMatmulConfig with_v = config;
    with_v.keep_full_precision = {"v"};
    Graph scaled = insert_scaled_matmul(g, with_v).graph;
    auto [out, report] = lower(scaled);
    EXPECT_EQ(report.count(AmpClass::Compute), 1);
    EXPECT_EQ(count_ops(out, ops::scaled_matmul), 1);
    for (int id = 0; id < out.size(); ++id) {
      Node n = out.node(id);
      EXPECT_TRUE(!n.is(ops::scaled_quantize) || n.dtype() == DType::U8);
      if (!n.is(ops::scaled_matmul)) continue;
      EXPECT_EQ(n.dtype(), DType::F32);
      for (Node in : n.inputs()) EXPECT_TRUE(in.dtype() == DType::U8 || in.dtype() == DType::F32) << in.text();
    }
    // Nor does it change the products of its gradient.
    Graph gradients = grad_with_loss(scaled, {"w"});
    for (auto& l : lower(gradients).report.lowered) EXPECT_EQ(l.dtype, DType::BF16);
    EXPECT_EQ(count_ops(lower(gradients).graph, ops::scaled_matmul), 1);
  }
}

// ---------------------------------------------------------------------------------------------- numbers

TEST(MixedPrecision, AgreesWithPyTorchsAutocast) {
  auto golden = nlohmann::json::parse(std::ifstream(std::string(RLX_TESTS_DIR) + "/passes/golden/autocast.json"));
  auto array = [&](const char* name) {
    return Array(golden[name]["values"].get<std::vector<float>>(), golden[name]["shape"].get<Extents>());
  };
  Graph g;
  Node x = g.input("x", DType::F32, {6, 8}), y = g.input("labels", DType::I32, {6});
  auto p = [&](const char* name, Shape shape) { return g.param(name, DType::F32, std::move(shape)); };
  Node h = relu(matmul(x, transpose(p("w1", {16, 8}), {1, 0})) + p("b1", {16}));
  g.set_outputs({cross_entropy(matmul(h, transpose(p("w2", {5, 16}), {1, 0})) + p("b2", {5}), y)});
  ArrayMap feeds{{"x", array("x")}, {"labels", Array(golden["labels"].get<std::vector<std::int32_t>>(), {6})}};
  Tensors params;
  for (const char* name : {"w1", "b1", "w2", "b2"}) params.emplace(name, array(name));
  for (DType dtype : kNarrow)
    for (Device device : {Device::reference(), Device::cpu()}) {
      auto& expected = golden[std::string(to_string(dtype))];
      Trained run = train(lower(g, config_of(PrecisionPolicy::AutoMixed, dtype)).graph, feeds, device, params);
      double ulp = dtype == DType::BF16 ? 1.0 / 256 : 1.0 / 2048;
      EXPECT_NEAR(run.values[0].at(0), expected["loss"].get<double>(), ulp) << device.name;
      std::vector<Array> theirs{run.values[0]};
      for (auto& name : param_names(g)) {
        std::size_t i = name == "w1" ? 0 : name == "b1" ? 1 : name == "w2" ? 2 : 3;
        theirs.push_back(Array(expected["gradients"][i].get<std::vector<float>>(), params.at(name).shape()));
      }
      EXPECT_LT(difference(run.values, theirs), 2 * ulp) << device.name << " " << to_string(dtype);
    }
}

TEST(MixedPrecision, LanguageModelTrainsAsInF32) {
  ModelConfig c = small_model();
  Graph f32 = training_graph(c, 2, c.context_length);
  ArrayMap feeds{{"tokens", labels({2, c.context_length + 1}, int(c.vocab_size))}};
  Tensors params = init_params(c, 3);
  for (Device device : {Device::reference(), Device::cpu()}) {
    Trained exact = train(f32, feeds, device, params);
    for (DType dtype : kNarrow)
      for (auto policy : {PrecisionPolicy::AutoMixed, PrecisionPolicy::AutoMixedConservative}) {
        auto [graph, report] = lower(f32, config_of(policy, dtype));
        EXPECT_EQ(report.count(AmpClass::Compute), 2 * (7 + 1) + 1);
        Trained run = train(graph, feeds, device, params, dtype == DType::F16 ? 1024 : 1);
        std::string where = device.name + " " + std::string(to_string(dtype));
        EXPECT_NEAR(run.values[0].at(0), exact.values[0].at(0), 1e-2 * exact.values[0].at(0)) << where;
        EXPECT_LT(difference(run.values, exact.values), 1e-2) << where;
        EXPECT_EQ(interpreted(run.report), interpreted(exact.report)) << run.report;
      }
  }
}

TEST(MixedPrecision, ConvolutionsTrainAsInF32) {
  Graph f32 = small_net();
  for (Device device : {Device::reference(), Device::cpu()}) {
    Trained exact = train(f32, net_feeds(), device, {});
    for (DType dtype : kNarrow) {
      auto [graph, report] = lower(f32, config_of(PrecisionPolicy::AutoMixed, dtype));
      EXPECT_EQ(report.count(AmpClass::Compute), 4);
      Trained run = train(graph, net_feeds(), device, {}, dtype == DType::F16 ? 256 : 1);
      EXPECT_NEAR(run.values[0].at(0), exact.values[0].at(0), 1e-2 * exact.values[0].at(0)) << device.name;
      EXPECT_LT(difference(run.values, exact.values), dtype == DType::BF16 ? 4e-2 : 1e-2) << device.name;
      EXPECT_EQ(interpreted(run.report), interpreted(exact.report)) << run.report;
    }
  }
}

TEST(MixedPrecision, EveryPolicyGivesTheF32ValuesNearly) {
  Graph g = layer();
  ArrayMap feeds{{"x", numbers({2, 4}, 1, 2)}};
  for (auto policy : {PrecisionPolicy::AlwaysF32, PrecisionPolicy::AlwaysF16, PrecisionPolicy::AutoMixed,
                      PrecisionPolicy::AutoMixedConservative, PrecisionPolicy::Bf16})
    for (Device device : {Device::reference(), Device::cpu()})
      for (bool strict : {false, true}) {
        auto run = [&](const Graph& graph) {
          CompiledGraph c = Session(device).compile(graph, {.strict_rounding = strict});
          c.set_param("w", numbers({4, 3}, 2, 2)), c.set_param("b", numbers({3}, 3, 2));
          return c.run(feeds)[0];
        };
        Array a = run(lower(g, config_of(policy)).graph), b = run(g);
        EXPECT_EQ(a.dtype(), DType::F32);
        for (std::int64_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a.at(i), b.at(i), 5e-3) << device.name;
      }
}

// On the cpu such a cast is the product's own f32 sums, which may be several params' next values and be read as well.
TEST(MixedPrecision, WidenedProductsAsUpdates) {
  Graph g;
  Node x = g.input("x", DType::BF16, {4, 8}), w = g.param("w", DType::BF16, {8, 4});
  Node product = matmul(x, w), wide = cast(product, DType::F32);
  for (const char* name : {"a", "b"}) g.param(name, DType::F32, {4, 4});
  Node turned = cast(transpose(product, {1, 0}), DType::F32);
  g.set_outputs({wide, wide, turned, relu(product), sum(product, {0}), matmul(product, product), g.find_leaf("a") + wide});
  std::vector<std::vector<Array>> runs;
  for (Device device : {Device::reference(), Device::cpu()}) {
    CompiledGraph c = Session(device).compile(g, {.updates = {{"a", 0}, {"b", 1}}});
    c.set_param("w", numbers({8, 4}, 2, 2).cast(DType::BF16));
    for (const char* name : {"a", "b"}) c.set_param(name, Array(DType::F32, {4, 4}));
    for (std::uint32_t step = 0; step < 3; ++step) {
      runs.push_back(c.run({{"x", numbers({4, 8}, step, 2).cast(DType::BF16)}}));
      runs.back().push_back(c.param("a")), runs.back().push_back(c.param("b"));
    }
  }
  for (std::size_t step = 0; step < 3; ++step)
    for (std::size_t k = 0; k < runs[0].size(); ++k)
      for (std::int64_t i = 0; i < runs[step][k].size(); ++i)
        EXPECT_NEAR(runs[step + 3][k].at(i), runs[step][k].at(i), 0.05) << step << " " << k << " " << i;
}

// With strict rounding the cpu gives the interpreter's bits, up to the order of sums.
TEST(MixedPrecision, StrictRoundingIsTheReferences) {
  Graph g = grad_with_loss(lower(small_net()).graph, {"c1", "c2", "c3", "fc"});
  std::vector<std::vector<Array>> runs;
  for (Device device : {Device::reference(), Device::cpu()}) {
    CompiledGraph c = Session(device).compile(g, {.strict_rounding = true});
    for (Node p : g.params()) c.set_param(p.name(), param_value(p));
    ArrayMap in = net_feeds();
    in.emplace("d_output", Array::scalar(1, DType::F32));
    runs.push_back(c.run(in));
  }
  EXPECT_LT(difference(runs[1], runs[0]), 4e-3);
}
