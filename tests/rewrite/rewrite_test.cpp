// The rule driver itself, on rules made for the test.
#include "rewrite/rewrite.h"

#include <gtest/gtest.h>

#include <chrono>

#include "ir/graph_data.h"
#include "rlx/ops.h"

using namespace rlx;

namespace {

struct Rules {
  Graph p{Graph::Mode::Pattern};
  Node x = p.any("x"), y = p.any("y");
  RuleSet set(std::vector<Rule> rules) const { return {{p}, std::move(rules)}; }
};

// The expression of the only output after the rules.
std::string after(const Graph& graph, const RuleSet& rules, unsigned allowed = kExact) {
  Rewritten out = rewrite(graph, rules, allowed);
  out.graph.verify();
  return expression(out.graph.outputs()[0]);
}
struct Program {
  Graph graph;
  Node a = graph.input("a", DType::F32, {2, 3}), b = graph.input("b", DType::F32, {2, 3});
  Graph& with(Node out) {
    graph.set_outputs({out});
    return graph;
  }
};

}  // namespace

TEST(Rewrite, ReplacesAndCounts) {
  Rules r;
  Program p;
  auto rules = r.set({{"double_neg", -(-r.x), r.x}, {"mul_one", r.x * 1, r.x}});
  Rewritten out = rewrite(p.with(exp(-(-(p.a * 1))) * 1), rules);
  EXPECT_EQ(expression(out.graph.outputs()[0]), "exp(a)");
  EXPECT_EQ(out.fired, (Fired{{"double_neg", 1}, {"mul_one", 2}}));
}

TEST(Rewrite, GivesTheSameHandleWhereNothingFires) {
  Rules r;
  Program p;
  p.with(exp(p.a));
  EXPECT_TRUE(same(rewrite(p.graph, r.set({{"double_neg", -(-r.x), r.x}})).graph, p.graph));
}

TEST(Rewrite, TriesBothOrdersOfEachCommutativeOp) {
  Rules r;
  Program p;
  // x must be bound by the inner product's second input: the outer order fits only after the inner one is swapped.
  auto rules = r.set({{"factor", (r.x * r.y) + r.x, r.x * (r.y + 1)}});
  EXPECT_EQ(after(p.with((p.a * p.b) + p.b), rules), "mul(b, add(a, 1))");
  EXPECT_EQ(after(p.with(p.b + (p.b * p.a)), rules), "mul(b, add(a, 1))");
}

TEST(Rewrite, NumbersMatchExpandedConstantsWithTheirSign) {
  Rules r;
  Program p;
  auto rules = r.set({{"sub_zero", r.x - 0, r.x}});
  EXPECT_EQ(after(p.with(p.a - expand(p.graph.constant(0, DType::F32), {2, 3})), rules), "a");
  EXPECT_EQ(after(p.with(p.a - -0.0), rules), "sub(a, -0)");
}

TEST(Rewrite, RefusesWhatChangesShapeOrDtype) {
  Rules r;
  Program p;
  auto rules = r.set({{"mul_one", r.x * 1, r.x}});
  Node c = p.graph.input("c", DType::F32, {3});
  EXPECT_EQ(after(p.with(c * expand(p.graph.constant(1, DType::F32), {2, 3})), rules), "mul(c, expand(1))");
  EXPECT_EQ(after(p.with(p.a * p.graph.constant(1, DType::F64)), rules), "mul(a, 1)");
}

TEST(Rewrite, NamesAndOriginsStay) {
  Rules r;
  Program p;
  p.graph.set_origin("model.py:7");
  Node y = (exp(p.a) * 1).named("y");
  Graph out = rewrite(p.with(y), r.set({{"mul_one", r.x * 1, r.x}})).graph;
  Node now = out.find("y");
  ASSERT_TRUE(now.is(ops::exp));
  EXPECT_EQ(now.origins(), (std::vector<std::string>{"model.py:7", "model.py:7, by mul_one"}));
}

TEST(Rewrite, WhatARuleMakesHasItsOrigin) {
  Rules r;
  Program p;
  p.graph.set_origin("model.py:9");
  Graph out = rewrite(p.with(p.a - -p.b), r.set({{"sub_neg", r.x - -r.y, r.x + r.y}})).graph;
  EXPECT_EQ(out.outputs()[0].origins(), std::vector<std::string>{"model.py:9, by sub_neg"});
  EXPECT_EQ(out.size(), 3) << out.text();
}

TEST(Rewrite, InexactRulesWaitForPermission) {
  Rules r;
  Program p;
  auto rules = r.set({{"add_zero", r.x + 0, r.x, kInexact}});
  p.with(p.a + 0);
  EXPECT_EQ(after(p.graph, rules), "add(a, 0)");
  EXPECT_EQ(after(p.graph, rules, kInexact), "a");
}

TEST(Rewrite, SingleUse) {
  Rules r;
  Program p;
  auto rules = r.set({{"double_neg", -(-r.x), r.x, kSingleUse}});
  Node inner = -p.a;
  p.graph.set_outputs({-inner, inner});
  EXPECT_TRUE(rewrite(p.graph, rules).fired.empty());
  EXPECT_EQ(after(p.with(-inner), rules), "a");
  // A use that another rule takes away does not count in the end.
  auto both = rules + r.set({{"mul_zero", r.x * 0, Node(0.0)}});
  EXPECT_EQ(after(p.with(-inner + inner * 0), both), "add(a, expand(0))");
}

TEST(Rewrite, Explains) {
  Rules r;
  Program p;
  Rule rule{"double_neg", -(-r.x), r.x, kSingleUse};
  EXPECT_EQ(explain(-exp(p.a), rule),
            "double_neg, neg(neg(x)) -> x, does not fire at neg %3 f32[2,3]: wanted neg of 1, got exp %2 f32[2,3]");
  EXPECT_EQ(explain(-(-p.a), rule), "double_neg, neg(neg(x)) -> x, fires at neg %5 f32[2,3]");
  rule.when = [](const Match&) { return false; };
  EXPECT_EQ(
      explain(-(-p.a), rule),
      "double_neg, neg(neg(x)) -> x, does not fire at neg %5 f32[2,3]: it matches, but its condition does not hold");
  Rule twice{"sub_self", r.x - r.x, Node(0.0), kInexact};
  EXPECT_EQ(explain(p.a - p.b, twice),
            "sub_self, sub(x, x) -> 0, does not fire at sub %6 f32[2,3]: wanted the same node as %0 \"a\" f32[2,3] for "
            "x, got input %1 \"b\" f32[2,3]");
}

TEST(Rewrite, RulesThatNeverEndAreNamed) {
  Rules r;
  Program p;
  auto rules = r.set({{"there", exp(r.x), log(r.x)}, {"back", log(r.x), exp(r.x)}});
  try {
    rewrite(p.with(exp(p.a)), rules);
    FAIL();
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("there back there"), std::string::npos) << e.what();
  }
}

TEST(Rewrite, LeavesAndOutputPlacesStay) {
  Rules r;
  Program p;
  p.graph.param("unused", DType::F32, {7});
  Node y = -(-p.a);
  p.graph.set_outputs({y, p.b, y});
  Graph out = rewrite(p.graph, r.set({{"double_neg", -(-r.x), r.x}})).graph;
  ASSERT_EQ(out.outputs().size(), 3u);
  EXPECT_EQ(out.outputs()[0].name(), "a");
  EXPECT_EQ(out.outputs()[1].name(), "b");
  EXPECT_TRUE(same(out.outputs()[0], out.outputs()[2]));
  EXPECT_TRUE(out.find_leaf("unused"));
}

TEST(Rewrite, LongGraphs) {
  Rules r;
  auto rules = r.set({{"double_neg", -(-r.x), r.x}, {"mul_one", r.x * 1, r.x}, {"sub_neg", r.x - -r.y, r.x + r.y}});
  Program p;
  Node y = p.a;
  for (int i = 0; i < 5000; ++i) y = exp(-(-(y * 1)));
  p.with(y);
  ASSERT_GE(p.graph.size(), 20000);
  auto start = std::chrono::steady_clock::now();
  Rewritten out = rewrite(p.graph, rules);
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(out.graph.size(), 5002);
  EXPECT_LT(seconds, 2) << "about 0.1 s in a release build";
  RecordProperty("milliseconds", int(seconds * 1000));
}

TEST(ExpandBodies, AgainInWhatTheyAreMadeOf) {
  Program p;
  p.graph.set_origin("here");
  Graph out = expand_bodies(p.with(hard_swish(p.a).named("y")), [](Node) { return true; }).graph;
  out.verify();
  for (int id = 0; id < out.size(); ++id) EXPECT_NE(out.node(id).op().kind, Kind::Composite) << out.text();
  EXPECT_EQ(out.outputs()[0].name(), "y");
  EXPECT_EQ(out.outputs()[0].origins()[0], "here, by body of hard_swish");
}
