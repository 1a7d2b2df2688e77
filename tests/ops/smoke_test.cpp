// Reads as documentation: build a graph, differentiate it, evaluate it.
#include <gtest/gtest.h>

#include "ops/eval.h"
#include "rlx/ops.h"
#include "rlx/transform.h"

using namespace rlx;

TEST(Smoke, BuildDifferentiateEvaluate) {
  Graph graph;
  Node x = graph.input("x", DType::F32, {2, 3});
  Node w = graph.param("w", DType::F32, {3});
  Node loss = sum(silu(x * w + 1), {0, 1});
  graph.set_outputs({loss});

  Graph backward = grad_with_loss(graph, {w});
  backward.verify();
  Feeds feeds{{"x", Array(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3})},
              {"w", Array(std::vector<float>{0.5f, -1, 2}, {3})},
              {"d_output", Array::scalar(1, DType::F32)}};
  auto values = evaluate(backward.outputs(), feeds);
  EXPECT_NEAR(values[0].at(0), 23.7368, 1e-3);
  EXPECT_EQ(values[1].shape(), Extents{3});
  EXPECT_EQ(Graph::parse(backward.text()).text(), backward.text());
}

TEST(Smoke, ErrorsNameTheOpAndItsInputs) {
  Graph graph;
  Node x = graph.input("x", DType::F32, {2, 3}), y = graph.input("y", DType::F32, {4});
  try {
    x + y;
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("(in add(%0 \"x\" f32[2,3], %1 \"y\" f32[4])"), std::string::npos) << e.what();
  }
}
