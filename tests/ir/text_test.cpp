// The text form: what is written reads back to an equal graph, and what is wrong is named with its line.
#include <gtest/gtest.h>

#include <bit>

#include "ops/values.h"

using namespace rlx;

static void expect_round_trip(const Graph& g) {
  std::string text = g.text();
  Graph read = Graph::parse(text);
  EXPECT_EQ(read.text(), text);
  read.verify();
}

TEST(Text, IsOneLineANode) {
  Graph g;
  Node x = g.input("x", DType::F32, {Dim::symbol("batch"), 4});
  g.set_origin("model.cpp:12");
  Node y = exp(x).named("y");
  g.set_outputs({y, y});
  EXPECT_EQ(g.text(),
            "rlx-graph 1\n"
            "%0 \"x\" : f32[batch,4] = input() {type = f32[batch,4]}\n"
            "%1 \"y\" : f32[batch,4] = exp(%0) # \"model.cpp:12\"\n"
            "outputs %1, %1\n");
  expect_round_trip(g);
}

TEST(Text, KeepsEveryAttribute) {
  Graph g;
  Dim n = Dim::symbol("n"), m = Dim::symbol("seq.len");
  Node x = g.input("x", DType::F64, {n, m * 2 + 1});
  Node w = g.param("a \"quoted\"\nname\\", DType::BF16, {3});
  Nodes out{pad(x, {n, 0}, {floor_div(m, 2), 1}, -std::numeric_limits<double>::infinity()),
            pad(x, {0, 0}, {0, 0}, 0.1),
            slice(x, {0, m}, {n, 2}, {1, -1}),
            sum(x, {0, -1}, true),
            cast(x, DType::I8),
            activation_backward(x, x, Activation::GeluTanh),
            max_pool(unsqueeze(x, {0}), {.kernel = {2}, .strides = {1}, .low = {1}, .ceil_mode = true}),
            scatter(w, g.constant(1, DType::U16), g.constant(2, DType::BF16), 0, ScatterMode::Add),
            iota(g, {n, min(n, m)}, 1, DType::I32)};
  g.set_outputs(out);
  expect_round_trip(g);
}

TEST(Text, KeepsConstantsToTheBit) {
  Graph g;
  std::vector<float> payloads{std::bit_cast<float>(0x7fc00001u), std::bit_cast<float>(0xffa0beefu), -0.f, 1e-45f};
  Node a = g.constant(Array(payloads, {4}));
  std::vector<double> wide{std::bit_cast<double>(0x7ff0000000000001ull), 0.1};
  Node b = g.constant(Array(wide, {2, 1}));
  Node c = g.constant(Array(std::vector<c64>{{1, -0.f}}, {1}), "named"), e = g.constant(Array(DType::F16, {0, 3}));
  Node pads = pad(b, {0, 0}, {1, 0}, std::bit_cast<double>(0xfff8000000000123ull));
  g.set_outputs({a, b, c, e, pads});
  expect_round_trip(g);
  Graph read = Graph::parse(g.text());
  for (int i = 0; i < 4; ++i)
    EXPECT_TRUE(identical(evaluate(read.outputs()[std::size_t(i)], {}), evaluate(g.outputs()[std::size_t(i)], {})));
  EXPECT_EQ(std::bit_cast<std::uint64_t>(read.outputs()[4].attrs<PadAttrs>().value), 0xfff8000000000123ull);
}

TEST(Text, KeepsNamesOriginsAndStreams) {
  Graph g;
  Node seed = g.input("seed", DType::I64, {});
  g.set_origin("a # \"b\"");
  Node u = random_uniform(seed, {2});
  g.set_origin("second");
  Node y = neg(u).named("one").named("two words");
  neg(u);
  g.inherit(y, u, "rule");
  g.new_stream();
  g.set_outputs({y});
  expect_round_trip(g);
  Graph read = Graph::parse(g.text());
  EXPECT_EQ(read.outputs()[0].names(), (std::vector<std::string>{"one", "two words"}));
  EXPECT_EQ(read.outputs()[0].origins(), (std::vector<std::string>{"second", "a # \"b\", by rule"}));
  EXPECT_EQ(read.new_stream(), 2);
}

TEST(Text, OfAnEmptyGraph) {
  expect_round_trip(Graph());
  EXPECT_EQ(Graph().text(), "rlx-graph 1\noutputs\n");
}

TEST(Text, ErrorsNameTheLine) {
  auto parse = [](const std::string& lines) {
    return Graph::parse("rlx-graph 1\n%0 \"x\" : f32[2] = input() {type = f32[2]}\n" + lines);
  };
  EXPECT_NO_THROW(parse("outputs %0\n"));
  EXPECT_ERROR(Graph::parse(""), "graph text: it is empty");
  EXPECT_ERROR(Graph::parse("rlx-graph 2\n"), "graph text, line 1: expected 'rlx-graph 1'");
  EXPECT_ERROR(parse("%1 : f32[2] = exp(%0)\n"), "graph text, line 3: it ends without an 'outputs' line");
  EXPECT_ERROR(parse("outputs %1\n"), "graph text, line 3: %1 is not defined above");
  EXPECT_ERROR(parse("outputs %0 %0\n"), "graph text, line 3: expected ','");
  EXPECT_ERROR(parse("outputs %0\n%1 : f32[2] = exp(%0)\n"), "graph text, line 4: something follows the outputs");
  EXPECT_ERROR(parse("%2 : f32[2] = exp(%0)\n"), "graph text, line 3: nodes are numbered in order: expected %1");
  EXPECT_ERROR(parse("%x : f32[2] = exp(%0)\n"), "graph text, line 3: expected a node number after '%'");
  EXPECT_ERROR(parse("%1 : f32[2] = nothing(%0)\n"), "graph text, line 3: there is no op 'nothing'");
  EXPECT_ERROR(parse("%1 : f32[3] = exp(%0)\n"), "graph text, line 3: [exp] has type f32[2], the text says f32[3]");
  EXPECT_ERROR(parse("%1 : f99[2] = exp(%0)\n"), "graph text, line 3: ");
  EXPECT_ERROR(parse("%1 : f32[2] = exp(%0) junk\n"), "graph text, line 3: something follows the node");
  EXPECT_ERROR(parse("%1 : f32[2] = exp(%0, %0)\n"), "graph text, line 3: [exp] takes 1 inputs, got 2");
  EXPECT_ERROR(parse("%1 : f32[2] = exp(%0\n"), "graph text, line 3: expected ','");
  EXPECT_ERROR(parse("%1 \"y : f32[2] = exp(%0)\n"), "graph text, line 3: a quoted name does not end");
  EXPECT_ERROR(parse("%1 : f32[] = sum(%0) {axes = [0]\n"), "graph text, line 3: a '{' does not end");
  EXPECT_ERROR(parse("%1 : f32[] = sum(%0) {axis = 0}\n"), "graph text, line 3: there is no attribute 'axis'");
  EXPECT_ERROR(parse("%1 : f32[] = sum(%0) {axes = 0}\n"), "graph text, line 3: expected […], got '0'");
  EXPECT_ERROR(parse("%1 : f32[] = sum(%0) {axes = [a]}\n"), "graph text, line 3: 'a' is not a number of its field");
  EXPECT_ERROR(parse("%1 : f32[] = sum(%0) {axes = [0], keepdims = yes}\n"),
               "graph text, line 3: 'yes' is neither true nor false");
  EXPECT_ERROR(parse("%1 : f32[] = sum(%0) {axes}\n"), "graph text, line 3: expected `name = value`, got 'axes'");
  EXPECT_ERROR(parse("%1 : f32[2] = activation_backward(%0, %0) {kind = swish}\n"),
               "graph text, line 3: unknown value 'swish'");
  EXPECT_ERROR(parse("%1 \"x\" : f32[2] = input() {type = f32[2]}\n"),
               "graph text, line 3: [input] the name \"x\" is taken");
  EXPECT_ERROR(parse("%1 : f32[2] = input() {type = f32[2]}\n"), "graph text, line 3: a leaf has one name");
  EXPECT_ERROR(parse("%1 \"y\" : f32[-2] = input() {type = f32[-2]}\n"), "graph text, line 3: ");
  EXPECT_ERROR(parse("%1 : f32[2] = constant() {value = f32[2] 0x0000}\n"),
               "graph text, line 3: f32[2] does not have 4 hex digits");
  EXPECT_ERROR(parse("%1 : u8[1] = constant() {value = u8[1] 0xzz}\n"), "graph text, line 3: 'z' is not a hex digit");
  EXPECT_ERROR(parse("%1 : u8[1] = constant() {value = u8[1]}\n"),
               "graph text, line 3: an array needs a type and its bytes as 0x…");
  EXPECT_ERROR(parse("%1 : f32[2] = exp(%0)\n%2 : f32[2] = exp(%0)\n"),
               "graph text, line 4: an equal node stands above");
  EXPECT_ERROR(parse("%1 : f32[2] = anything()\n"), "graph text, line 3: 'any' stands in patterns only");
  EXPECT_ERROR(parse("streams x\n"), "graph text, line 3: 'x' is not a number of its field");
}

TEST(Text, HugeSizesAreRefusedBeforeAnythingIsAllocated) {
  auto parse = [](const std::string& line) { return Graph::parse("rlx-graph 1\n" + line + "\noutputs\n"); };
  EXPECT_ERROR(parse("%0 : f32[4611686018427387904] = constant() {value = f32[4611686018427387904] 0x}"), "hex digits");
  EXPECT_ERROR(parse("%0 : f32[4294967296,4294967296] = constant() {value = f32[4294967296,4294967296] 0x00000000}"),
               "graph text, line 2");
  EXPECT_NO_THROW(parse(
      "%0 \"x\" : f32[1,1,1000000000000] = input() {type = f32[1,1,1000000000000]}\n"
      "%1 : f32[1,1,1000000000000] = max_pool(%0) {kernel = [1], strides = [], low = [], high = [], dilation = [], "
      "ceil_mode = false, count_include_pad = false}"));
}

// Each damaged copy of a good text is read or refused, whatever it is.
TEST(Text, DamagedTextNeverCrashes) {
  Graph g;
  Node x = g.input("x", DType::F32, {Dim::symbol("n"), 4});
  Node y = slice(pad(x, {1, 0}, {0, 2}, 0.5), {0, 1}, {Dim::symbol("n"), 3}, {1, 2});
  g.set_outputs({sum(gelu(y) * g.constant(floats({1, 2, 3}, {3})), {1})});
  std::string text = g.text();
  int read = 0, refused = 0;
  for (std::size_t i = 0; i < text.size(); ++i)
    for (char c : {'\0', '%', '[', '9', '-', '"', '{', '\n'}) {
      std::string damaged = text;
      if (c)
        damaged[i] = c;
      else
        damaged.erase(i, 3);
      try {
        Graph::parse(damaged);
        ++read;
      } catch (const Error&) {
        ++refused;
      }
    }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(read, 10);
}
