// Building: interning, names and origins, errors of leaves, and what verify finds in a damaged graph.
#include <gtest/gtest.h>

#include "ops/values.h"

using namespace rlx;

TEST(Graph, EqualNodesAreOne) {
  Graph g;
  Node x = g.input("x", DType::F32, {2});
  EXPECT_TRUE(same(exp(x), exp(x)));
  EXPECT_TRUE(same(x + 1, x + 1));
  EXPECT_TRUE(same(sum(x, {0}), sum(x, {0}, false)));
  EXPECT_FALSE(same(sum(x, {0}), sum(x, {0}, true)));
  EXPECT_FALSE(same(x - 1, 1 - x));
  EXPECT_FALSE(same(g.constant(0.0, DType::F32), g.constant(-0.0, DType::F32)));
  EXPECT_FALSE(same(g.constant(1, DType::F32), g.constant(1, DType::F16)));
  Array w = floats({1, 2}, {2});
  EXPECT_TRUE(same(g.constant(w), g.constant(w.clone())));
  EXPECT_FALSE(same(g.constant(w, "a"), g.constant(w, "b")));  // a named constant is a leaf
}

TEST(Graph, NamesAndOriginsMerge) {
  Graph g;
  Node x = g.input("x", DType::F32, {2});
  g.set_origin("a.py:1");
  Node y = exp(x).named("first");
  g.set_origin("a.py:9");
  Node z = exp(x).named("second").named("first");
  EXPECT_TRUE(same(y, z));
  EXPECT_EQ(y.names(), (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(y.origins(), (std::vector<std::string>{"a.py:1", "a.py:9"}));
  EXPECT_TRUE(same(g.find("second"), y));
  EXPECT_EQ(y.text(), "%1 \"first\" f32[2]");
  g.set_origin("");
  Node w = neg(x);
  g.inherit(w, y, "my_rule");
  EXPECT_EQ(w.names(), y.names());
  EXPECT_EQ(w.origins(), (std::vector<std::string>{"a.py:1, by my_rule", "a.py:9, by my_rule"}));
}

TEST(Graph, NumbersTakeTheDtypeTheyMeet) {
  Graph g;
  Node h = g.input("h", DType::BF16, {2}), i = g.input("i", DType::I8, {2}), d = g.input("d", DType::F64, {2});
  EXPECT_EQ((h * 0.1).dtype(), DType::BF16);
  EXPECT_EQ((2 * i).dtype(), DType::I8);
  EXPECT_EQ((d + 1).input(1).dtype(), DType::F64);
  EXPECT_EQ(where(h > 0, i, 3).dtype(), DType::I8);
}

TEST(Graph, ExpressionIsShort) {
  Graph g;
  Node x = g.input("x", DType::F32, {2}), y = g.input("y", DType::F32, {2});
  EXPECT_EQ(expression(exp(x * 2) + y), "add(exp(mul(x, 2)), y)");
}

TEST(Graph, Errors) {
  Graph g, h;
  Node x = g.input("x", DType::F32, {2});
  EXPECT_ERROR(g.input("", DType::F32, {2}), "[input] needs a name");
  EXPECT_ERROR(g.param("x", DType::F32, {3}), "[param] the name \"x\" is taken by %0 \"x\" f32[2]");
  EXPECT_ERROR(g.input("y", DType::Any, {2}), "[input] \"y\" needs a dtype");
  EXPECT_ERROR(g.input("y", DType::F32, {-1}), "[input] \"y\" has a negative size: f32[-1]");
  EXPECT_ERROR(g.any("y"), "[any] is for patterns only");
  EXPECT_ERROR(x.named("other"), "named: the leaf %0 \"x\" f32[2] keeps the name it was made with, got \"other\"");
  EXPECT_ERROR(exp(x).named(""), "named: a name cannot be empty");
  EXPECT_ERROR(Node(2.0).type(), "a plain number has no type until it meets a tensor");
  EXPECT_ERROR(none.type(), "an empty node has no type");
  EXPECT_ERROR(h.set_outputs({x}), "set_outputs: the node %0 \"x\" f32[2] is not of this graph");
  EXPECT_ERROR(h.add_output(x), "add_output: the node %0 \"x\" f32[2] is not of this graph");
  g.set_origin("net.py:3");
  EXPECT_ERROR(logical_not(x), "[logical_not] needs bool, got f32 (in logical_not(%0 \"x\" f32[2]), net.py:3)");
}

TEST(Graph, FeedsAreChecked) {
  Graph g;
  Node x = g.input("x", DType::F32, {Dim::symbol("n"), 2}), y = g.param("y", DType::F32, {Dim::symbol("n") * 2});
  EXPECT_ERROR(evaluate(exp(x), {}), "input %0 \"x\" f32[n,2] is not fed");
  EXPECT_ERROR(evaluate(exp(x), {{"x", Array(DType::F64, {2, 2})}}), "input \"x\": got f64[2,2], expected f32[n,2]");
  EXPECT_ERROR(evaluate(exp(x), {{"x", Array(DType::F32, {2, 3})}}),
               "input \"x\": got f32[2,3], expected f32[n,2]; axis 1 is 2 = 2");
  EXPECT_ERROR(
      evaluate(sum(x, {0, 1}) + sum(y, {0}), {{"x", Array(DType::F32, {2, 2})}, {"y", Array(DType::F32, {5})}}),
      "param \"y\": got f32[5], expected f32[2*n]; axis 0 is 2*n = 4");
}

// ---------------------------------------------------------------------------------------------- verify

class Verify : public testing::Test {
 protected:
  Verify() : x(g.input("x", DType::F32, {2})), y(exp(x)), z(sum(y, {0})) {
    g.set_outputs({z});
    g.verify();
  }
  NodeData& data(Node n) { return g.data().nodes[std::size_t(n.id())]; }
  void expect(const std::string& part) {
    expect_error<InternalError>([&] { g.verify(); }, part);
  }
  Graph g, other;
  Node x, y, z;
};

TEST_F(Verify, FindsAWrongType) {
  data(y).type.shape = {3};
  expect("verify: [exp] %1 f32[3]: its rule gives f32[2]");
}
TEST_F(Verify, FindsAnInputThatStandsAfter) {
  data(y).inputs[0] = z;
  expect("verify: [exp] %1 f32[2]: its input %2 does not stand before it");
}
TEST_F(Verify, FindsAnInputOfAnotherGraph) {
  data(y).inputs[0] = other.input("x", DType::F32, {2});
  expect("verify: [exp] %1 f32[2]: an input is not a node of the graph");
}
TEST_F(Verify, FindsAMissingInput) {
  data(y).inputs.clear();
  expect("verify: [exp] %1 f32[2]: wrong number of inputs");
}
TEST_F(Verify, FindsAttributesOfAnotherOp) {
  data(z).attrs = AxisAttrs{0};
  expect("verify: [sum] %2 f32[]: attributes of another op");
}
TEST_F(Verify, FindsBadAttributes) {
  data(z).attrs = ReduceAttrs{{5}, false};
  expect("verify: [sum] %2 f32[]: axis 5: expected one in [-1, 1)");
}
TEST_F(Verify, FindsTwoLeavesOfOneName) {
  Node w = g.input("w", DType::F32, {2});
  data(w).names = {"x"};
  expect("another leaf has its name");
}
TEST_F(Verify, FindsAConstantOfAnotherType) {
  data(g.constant(1, DType::F32)).type.dtype = DType::F16;
  expect("its value has another type");
}
TEST_F(Verify, FindsAnOutputOfAnotherGraph) {
  g.data().outputs = {other.input("x", DType::F32, {2})};
  expect("verify: an output is not a node of the graph");
}
TEST_F(Verify, FindsANodeOfAPattern) {
  data(y).op = &any_op;
  data(y).attrs = Attrs();
  data(y).inputs.clear();
  expect("an op for patterns only");
}
TEST_F(Verify, RefusesAPattern) {
  Graph pattern(Graph::Mode::Pattern);
  expect_error<InternalError>([&] { pattern.verify(); }, "verify: a pattern is not a program");
}
