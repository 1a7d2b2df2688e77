// Text in, pass, text out.
#include "passes/passes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "ops/eval.h"
#include "passes/pipeline.h"
#include "rlx/op_attrs.h"
#include "rlx/ops.h"
#include "temporary.h"

using namespace rlx;

namespace {

std::string header(const std::string& lines) { return "rlx-graph 1\n" + lines; }

// The text after a pass, checked; the text must be the one that Graph prints.
template <class Pass>
std::string run(Pass pass, const std::string& lines) {
  Graph in = Graph::parse(header(lines));
  Graph out = pass(in);
  out.verify();
  std::string text = out.text();
  return text.substr(text.find('\n') + 1);
}
Graph simplified(const Graph& g) { return simplify(g).graph; }
Graph alive(const Graph& g) { return eliminate_dead_code(g).graph; }
Graph collapsed(const Graph& g) { return collapse_straight_through(g).graph; }

}  // namespace

TEST(Simplify, MergesMovements) {
  EXPECT_EQ(run(simplified,
                "%0 \"x\" : f32[2,3,4] = input() {type = f32[2,3,4]}\n"
                "%1 : f32[4,2,3] = transpose(%0) {perm = [2, 0, 1]}\n"
                "%2 : f32[2,4,3] = transpose(%1) {perm = [1, 0, 2]}\n"
                "%3 : f32[8,3] = reshape(%2) {shape = [8, 3]}\n"
                "%4 \"y\" : f32[24] = reshape(%3) {shape = [24]}\n"
                "outputs %4\n"),
            "%0 \"x\" : f32[2,3,4] = input() {type = f32[2,3,4]}\n"
            "%1 : f32[2,4,3] = transpose(%0) {perm = [0, 2, 1]} # \"by merge_transposes\"\n"
            "%2 \"y\" : f32[24] = reshape(%1) {shape = [24]} # \"by merge_reshapes\"\n"
            "outputs %2\n");
}

TEST(Simplify, KeepsWhatIsNotExact) {
  Graph graph;
  Node x = graph.input("x", DType::F32, {Dim::symbol("n")});
  graph.set_outputs({x + 0});
  EXPECT_TRUE(same(simplify(graph).graph, graph));
  graph.set_outputs({x - 0, x * 1, x / 1, -(-x)});
  Graph out = simplify(graph).graph;
  for (Node n : out.outputs()) EXPECT_EQ(n.name(), "x");
}

TEST(Simplify, MergesSlicesWithSymbolicSizes) {
  Graph graph;
  Dim n = Dim::symbol("n");
  Node x = graph.input("x", DType::F32, {n});
  Node y = slice(slice(x, {2}, {n - 2}, {1}), {3}, {n - 5}, {1});
  graph.set_outputs({y, slice(x, {0}, {n}, {1})});
  Graph out = simplify(graph).graph;
  EXPECT_EQ(out.outputs()[0].attrs().text(), "starts = [5], sizes = [n - 5], steps = [1]");
  EXPECT_TRUE(same(out.outputs()[0].input(0), out.outputs()[1]));
}

TEST(FoldConstants, FoldsAndKeepsNumbersSmall) {
  Graph graph;
  Dim n = Dim::symbol("n");
  Node x = graph.input("x", DType::F32, {n, 3});
  Node two = expand(graph.constant(2, DType::F32), {n, 3});
  Node table = graph.constant(Array(std::vector<float>{1, 4, 9}, {3}));
  graph.set_outputs({(x * sqrt(two * 8) + (sqrt(table) + 1)).named("y"), size(x, 1), size(x, 0)});
  Graph out = fold_constants(graph).graph;
  out.verify();
  EXPECT_EQ(expression(out.outputs()[0].input(0)), "mul(x, expand(4))");
  Node sum = out.outputs()[0].input(1);
  ASSERT_TRUE(sum.is(constant_op));
  EXPECT_EQ(sum.attrs<ConstantAttrs>().value.to_vector<float>(), (std::vector<float>{2, 3, 4}));
  EXPECT_EQ(out.outputs()[1].attrs<ConstantAttrs>().value.at(0), 3);
  EXPECT_TRUE(out.outputs()[2].is(ops::size));
}

TEST(FoldConstants, LeavesWhatIsLargeAlone) {
  Graph graph;
  Node positions = iota(graph, {1 << 20, 1 << 20}, 0, DType::F32);
  graph.set_outputs({exp(positions), exp(iota(graph, {3}, 0, DType::F32)),
                     exp(expand(graph.constant(0, DType::F32), {1 << 20, 1 << 20}))});
  Graph out = fold_constants(graph).graph;
  EXPECT_TRUE(out.outputs()[0].is(ops::exp));
  EXPECT_NEAR(out.outputs()[1].attrs<ConstantAttrs>().value.at(2), std::exp(2), 1e-6);
  EXPECT_EQ(expression(out.outputs()[2]), "expand(1)");
}

TEST(FoldConstants, LeavesWhatFailsAlone) {
  Graph graph;
  Node table = graph.constant(Array(std::vector<float>{1, 4, 9}, {3}));
  Node at = graph.constant(Array(std::vector<std::int64_t>{5}, {1}));
  graph.set_outputs({gather(table, at, 0)});
  EXPECT_TRUE(same(fold_constants(graph).graph, graph));
}

TEST(EliminateDeadCode, KeepsTheFaceOfTheGraph) {
  std::string text =
      "%0 \"x\" : f32[2] = input() {type = f32[2]}\n"
      "%1 \"w\" : f32[2] = param() {type = f32[2]}\n"
      "%2 \"dead\" : f32[2] = exp(%0)\n"
      "%3 \"y\" : f32[2] = neg(%0)\n"
      "outputs %3, %3\n";
  EXPECT_EQ(run(alive, text),
            "%0 \"x\" : f32[2] = input() {type = f32[2]}\n"
            "%1 \"w\" : f32[2] = param() {type = f32[2]}\n"
            "%2 \"y\" : f32[2] = neg(%0)\n"
            "outputs %2, %2\n");
  Graph all = eliminate_dead_code(Graph::parse(header(text)), true).graph;
  EXPECT_EQ(all.size(), 2);
  EXPECT_TRUE(same(eliminate_dead_code(all, true).graph, all));
}

TEST(Legalize, ExpandsWhatIsNotClaimed) {
  Graph graph;
  Node x = graph.input("x", DType::F32, {4});
  graph.set_outputs({hard_swish(x), silu(x)});
  Graph out = legalize(graph, [](Node n) { return n.is(ops::silu) || n.is(ops::clamp); }).graph;
  out.verify();
  EXPECT_EQ(expression(out.outputs()[0]), "mul(x, clamp(add(div(x, 6), 0.5), 0, 1))");
  EXPECT_TRUE(out.outputs()[1].is(ops::silu));
}

TEST(LowerBackwardOps, ExactlyThese) {
  EXPECT_EQ(run(lower_backward_ops,
                "%0 \"x\" : f32[2] = input() {type = f32[2]}\n"
                "%1 \"dy\" : f32[2] = input() {type = f32[2]}\n"
                "%2 \"kept\" : f32[2] = silu(%0) # \"model.py:3\"\n"
                "%3 \"dx\" : f32[2] = activation_backward(%0, %1) {kind = relu} # \"model.py:3, by grad\"\n"
                "%4 \"dead\" : f32[2] = exp(%0)\n"
                "outputs %3, %2\n"),
            "%0 \"x\" : f32[2] = input() {type = f32[2]}\n"
            "%1 \"dy\" : f32[2] = input() {type = f32[2]}\n"
            "%2 \"kept\" : f32[2] = silu(%0) # \"model.py:3\"\n"
            "%3 : f32[] = constant() {value = f32[] 0x00000000 (0)} # \"model.py:3, by grad, by body of "
            "activation_backward, by body of relu_backward\"\n"
            "%4 : bool[2] = greater(%0, %3) # \"model.py:3, by grad, by body of activation_backward, by body of "
            "relu_backward\"\n"
            "%5 \"dx\" : f32[2] = where(%4, %1, %3) # \"model.py:3, by grad, by body of activation_backward, by body "
            "of relu_backward\"\n"
            "%6 \"dead\" : f32[2] = exp(%0)\n"
            "outputs %5, %2\n");
}

TEST(LowerBackwardOps, TheSameHandleWhereThereAreNone) {
  Graph graph;
  Node x = graph.input("x", DType::F32, {4});
  graph.set_outputs({softplus(x)});
  EXPECT_TRUE(same(lower_backward_ops(graph), graph));
}

TEST(CollapseStraightThrough, BothOrders) {
  std::string leaves =
      "%0 \"v\" : f32[2] = input() {type = f32[2]}\n%1 : f32[2] = round(%0)\n%2 : f32[2] = sub(%1, %0)\n%3 : f32[2] = "
      "stop_gradient(%2)\n";
  std::string wanted =
      "%0 \"v\" : f32[2] = input() {type = f32[2]}\n"
      "%1 \"y\" : f32[2] = round(%0) # \"by collapse_straight_through\"\n"
      "outputs %1\n";
  EXPECT_EQ(run(collapsed, leaves + "%4 \"y\" : f32[2] = add(%0, %3)\noutputs %4\n"), wanted);
  EXPECT_EQ(run(collapsed, leaves + "%4 \"y\" : f32[2] = add(%3, %0)\noutputs %4\n"), wanted);
}

TEST(Pipeline, ReportsAndVerifies) {
  Graph graph;
  Node x = graph.input("x", DType::F32, {4});
  graph.set_outputs({(hard_swish(-(-x)) * sqrt(graph.constant(4, DType::F32))).named("y")});
  PipelineResult out = run_passes(graph, cpu_passes([](Node) { return false; }), {.name = "test", .verify = true});
  ASSERT_GE(out.passes.size(), 6u);
  EXPECT_EQ(out.passes[0].name, "simplify");
  EXPECT_TRUE(out.passes[0].changed);
  EXPECT_EQ(out.passes[0].fired, (Fired{{"double_neg", 1}}));
  EXPECT_FALSE(out.passes[1].changed);
  EXPECT_NE(to_string(out.passes).find("unchanged"), std::string::npos);
  for (int id = 0; id < out.graph.size(); ++id) EXPECT_NE(out.graph.node(id).op().kind, Kind::Composite);
  Feeds feeds{{"x", Array(std::vector<float>{-4, -1, 1, 5}, {4})}};
  EXPECT_TRUE(identical(evaluate(out.graph.outputs()[0], feeds), evaluate(graph.outputs()[0], feeds)));
}

TEST(Pipeline, WritesTheGraphsIntoAFolder) {
  std::string folder = temporary_path("dump");
  std::filesystem::remove_all(folder);
  setenv("RLX_DUMP", folder.c_str(), 1);
  Graph graph;
  graph.set_outputs({-(-graph.input("x", DType::F32, {4}))});
  run_passes(graph, {{"simplify", simplify}, {"simplify", simplify}}, {.name = "test"});
  unsetenv("RLX_DUMP");
  EXPECT_TRUE(std::filesystem::exists(folder + "/test.01.simplify.rlx"));
  EXPECT_FALSE(std::filesystem::exists(folder + "/test.02.simplify.rlx"));  // it changed nothing
  std::filesystem::remove_all(folder);
}

TEST(Pipeline, PrintsWhatRLX_DEBUGAsksFor) {
  setenv("RLX_DEBUG", "5", 1);
  Graph graph;
  graph.set_outputs({-(-exp(graph.input("x", DType::F32, {4}) * 2))});
  testing::internal::CaptureStderr();
  run_passes(graph, {{"simplify", simplify}}, {.name = "test"});
  std::string text = testing::internal::GetCapturedStderr();
  unsetenv("RLX_DEBUG");
  EXPECT_NE(text.find("[test] simplify"), std::string::npos) << text;
  EXPECT_NE(text.find("6 -> 4 nodes\n    1 x double_neg\n"), std::string::npos) << text;
  EXPECT_NE(text.find("%3 f32[4] = exp(%2)\noutputs %3\n"), std::string::npos) << text;
}

TEST(Pipeline, ErrorsNameThePass) {
  Graph graph;
  graph.set_outputs({graph.input("x", DType::F32, {4})});
  std::vector<Pass> passes{{"break_things", [](const Graph&) -> Rewritten { throw UserError("[exp] no"); }}};
  try {
    run_passes(graph, passes);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "pass break_things: [exp] no");
  }
}
