// Random graphs through the pipeline: the interpreter gives the same bits before and after.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ops/eval.h"
#include "passes/pipeline.h"
#include "rlx/op_attrs.h"
#include "rlx/ops.h"

using namespace rlx;

namespace {

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  Graph graph(int steps) {
    Graph g;
    pool_ = {g.input("x", DType::F32, {3, 4}), g.input("y", DType::F32, {4}), g.param("w", DType::F32, {3, 1}),
             g.constant(2, DType::F32), g.constant(Array(std::vector<float>{0, -1, 2, 0.5f}, {4}))};
    for (int i = 0; i < steps; ++i) try {
        pool_.push_back(step(pick(), pick()));
      } catch (const UserError&) {  // shapes that don't go together
      }
    Nodes outputs;
    for (int i = 0; i < 3; ++i) outputs.push_back(pick());
    outputs.push_back(pool_.back());
    g.set_outputs(outputs);
    return g;
  }
  int below(int n) { return int(random_() % unsigned(n)); }

 private:
  Node pick() { return pool_[std::size_t(below(int(pool_.size())))]; }
  Node step(Node a, Node b) {
    Axes backwards;
    for (int d = a.rank(); d-- > 0;) backwards.push_back(d);
    Shape wide = a.shape();
    wide.insert(wide.begin(), 2);
    switch (below(26)) {
      case 0: return a + b;
      case 1: return a - b;
      case 2: return a * b;
      case 3: return a / b;
      case 4: return -a;
      case 5: return a * 1;
      case 6: return pow(a, 2);
      case 7: return exp(a);
      case 8: return relu(a);
      case 9: return gelu(a);
      case 10: return clamp(a, -1, 1);
      case 11: return where(a > b, a, b);
      case 12: return transpose(a, backwards);
      case 13: return reshape(a, {count(a.shape())});
      case 14: return expand(a, wide);
      case 15: return cast(cast(a, DType::F64), DType::F32);
      case 16: return sum(a, {-1}, below(2));
      case 17: return max(a, {0}, true);
      case 18: return flip(a, {-1});
      case 19: return slice(a, Shape(a.shape().size(), 0), a.shape(), Extents(a.shape().size(), 1));
      case 20: return concat({a, b}, 0);
      case 21: return a + stop_gradient(round(a) - a);
      case 22: return softmax(a);
      case 23: return abs(-a);
      case 24: return matmul(a, b);
      default: return maximum(a, a) - -b;
    }
  }

  std::mt19937 random_;
  Nodes pool_;
};

bool is_straight_through(const std::vector<PassReport>& passes) {
  for (auto& pass : passes)
    if (pass.fired.contains("collapse_straight_through")) return true;
  return false;
}

}  // namespace

TEST(Pipeline, RandomGraphsKeepTheirValues) {
  int compared = 0;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    Generator make(seed + 1000 * unsigned(testing::UnitTest::GetInstance()->random_seed()));
    Graph graph = make.graph(25);
    PipelineResult out =
        run_passes(graph, cpu_passes([](Node n) { return n.is(ops::gelu); }), {.name = "fuzz", .verify = true});
    ASSERT_EQ(out.graph.outputs().size(), graph.outputs().size());
    bool exact = !is_straight_through(out.passes);
    Feeds feeds{{"x", Array(DType::F32, {3, 4})}, {"y", Array(DType::F32, {4})}, {"w", Array(DType::F32, {3, 1})}};
    for (auto& [name, array] : feeds)
      for (float& v : array.values<float>()) v = float(make.below(9) - 4) * (make.below(2) ? 1.f : 0.37f);
    auto before = evaluate(graph.outputs(), feeds), after = evaluate(out.graph.outputs(), feeds);
    for (std::size_t o = 0; exact && o < before.size(); ++o)
      for (std::int64_t i = 0; i < before[o].size(); ++i) {
        double a = before[o].at(i), b = after[o].at(i);
        ASSERT_TRUE((a == b && std::signbit(a) == std::signbit(b)) || (std::isnan(a) && std::isnan(b)))
            << "seed " << seed << ", output " << o << ", element " << i << ": " << a << " and " << b << "\n"
            << graph.text() << out.graph.text();
        ++compared;
      }
  }
  EXPECT_GT(compared, 1000);
}

TEST(LowerBackwardOps, KeepsEveryValue) {
  for (int kind = 0; kind < int(enum_names(Activation::Relu).size()); ++kind) {
    Graph graph;
    Node x = graph.input("x", DType::F32, {6}), dy = graph.input("dy", DType::F32, {6});
    graph.set_outputs({activation_backward(x, dy, Activation(kind)).named("dx")});
    Graph lowered = lower_backward_ops(graph);
    lowered.verify();
    EXPECT_FALSE(lowered.find("dx").is(ops::activation_backward));
    Feeds feeds{{"x", Array(std::vector<float>{-2, -0.f, 0, .5f, 1, 3}, {6})},
                {"dy", Array(std::vector<float>{1, 2, 3, 4, 5, 6}, {6})}};
    EXPECT_TRUE(identical(evaluate(graph.outputs()[0], feeds), evaluate(lowered.outputs()[0], feeds))) << kind;
  }
}

TEST(LowerBackwardOps, BatchNormAndNothingElse) {
  Graph graph;
  Node x = graph.input("x", DType::F32, {2, 3, 4});
  Node gamma = graph.param("gamma", DType::F32, {3}), beta = graph.param("beta", DType::F32, {3});
  Node mean = graph.param("mean", DType::F32, {3}), var = graph.param("var", DType::F32, {3});
  Node y = softmax(batch_norm_inference(x, gamma, beta, mean, var));
  graph.set_outputs({sum(square(y), {0, 1, 2})});
  Graph backward = grad_with_loss(graph, std::vector<std::string>{"x", "gamma", "beta"});
  auto ops_of = [](const Graph& g) {
    std::map<std::string, int> out;
    for (int id = 0; id < g.size(); ++id) ++out[std::string(g.node(id).op().name)];
    return out;
  };
  auto before = ops_of(backward), after = ops_of(lower_backward_ops(backward));
  for (const char* which : {"input", "gamma", "beta"}) {
    std::string op = std::string("batch_norm_inference_backward_") + which;
    EXPECT_EQ(before[op], 1) << op;
    EXPECT_EQ(after[op], 0) << op;
  }
  for (const char* op : {"batch_norm_inference", "softmax", "square"}) EXPECT_EQ(after[op], before[op]) << op;
}
