// AdamW and Muon against PyTorch's and NumPy's numbers, and at their edges.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "message_of.h"
#include "rlx/ops.h"
#include "rlx/train.h"

using namespace rlx;

namespace {

using Json = nlohmann::json;

const Json& golden() {
  static const Json numbers = Json::parse(std::ifstream(std::string(RLX_TESTS_DIR) + "/optim/golden/optimizers.json"));
  return numbers;
}
Array array_of(const Json& j, DType dtype = DType::F64) {
  return Array(j.at("values").get<std::vector<double>>(), j.at("shape").get<Extents>()).cast(dtype);
}
void expect_near(const Array& got, const Array& expected, double tolerance) {
  ASSERT_EQ(got.shape(), expected.shape());
  for (std::int64_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got.at(i), expected.at(i), tolerance) << "at " << i;
}

// One param under one optimizer, compiled as a step.
class Step {
 public:
  template <class Optimizer>
  Step(const Optimizer& optimizer, const Array& start, DType scalars) : scalars_(scalars) {
    Graph graph;
    Node p = graph.param("p", start.type()), g = graph.input("g", start.type());
    StepNodes nodes{graph.input("lr", scalars, {}), graph.input("decay", scalars, {}),
                    graph.input("step", scalars, {})};
    std::vector<StateNode> states;
    Nodes outputs{update(optimizer, p, g, nodes, states)};
    std::vector<Update> updates{{"p", 0}};
    for (auto& s : states) {
      updates.push_back({s.param.name(), int(outputs.size())});
      outputs.push_back(s.next);
    }
    graph.set_outputs(outputs);
    graph.verify();
    compiled_ = std::make_unique<CompiledGraph>(
        Session(Device::reference()).compile(graph, {.name = "step", .updates = updates}));
    compiled_->set_param("p", start);
    for (auto& s : states) compiled_->set_param(s.param.name(), Array(s.param.dtype(), to_extents(s.param.shape())));
  }
  Array run(const Array& gradient, double lr, double decay) {
    compiled_->run({{"g", gradient},
                    {"lr", Array::scalar(lr, scalars_)},
                    {"decay", Array::scalar(decay, scalars_)},
                    {"step", Array::scalar(double(++step_), scalars_)}});
    return compiled_->param("p");
  }

 private:
  static Node update(const AdamW& o, Node p, Node g, const StepNodes& n, std::vector<StateNode>& s) {
    return adamw_update(o, p, g, n, s);
  }
  static Node update(const Muon& o, Node p, Node g, const StepNodes& n, std::vector<StateNode>& s) {
    return muon_update(o, p, g, n, s);
  }
  DType scalars_;
  std::unique_ptr<CompiledGraph> compiled_;
  int step_ = 0;
};

Array orthogonal(const Array& x, const Muon& muon = {}) {
  Graph graph;
  graph.set_outputs({orthogonalize(graph.input("x", x.type()), muon)});
  return Session(Device::reference()).compile(graph).run({{"x", x}})[0];
}

}  // namespace

TEST(AdamW, OneStepOfKnownNumbers) {
  Step step(AdamW{}, Array::scalar(1, DType::F64), DType::F64);
  EXPECT_NEAR(step.run(Array::scalar(0.5, DType::F64), 0.1, 0.01).at(0), 0.899000002, 1e-12);
  Step single(AdamW{}, Array::scalar(1, DType::F32), DType::F32);
  EXPECT_NEAR(single.run(Array::scalar(0.5, DType::F32), 0.1, 0.01).at(0), 0.899000002, 2e-7);
}

TEST(AdamW, DecayIsMultipliedByTheLearningRate) {
  Step step(AdamW{}, Array::scalar(1, DType::F64), DType::F64);
  EXPECT_NEAR(step.run(Array::scalar(0, DType::F64), 0.1, 0.01).at(0), 0.999, 1e-15);
}

TEST(AdamW, AZeroGradientInF16IsNoNaN) {
  Step step(AdamW{}, Array::scalar(1, DType::F16), DType::F32);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step.run(Array::scalar(0, DType::F16), 0.1, 0).at(0), 1);
}

TEST(AdamW, AgreesWithPyTorch) {
  auto& g = golden().at("adamw");
  for (DType dtype : {DType::F64, DType::F32}) {
    Step step(AdamW{.beta2 = 0.95}, array_of(g.at("param"), dtype), dtype);
    Array p;
    for (std::size_t i = 0; i < g.at("gradients").size(); ++i)
      p = step.run(array_of(g.at("gradients")[i], dtype), g.at("rates")[i], g.at("decay"));
    expect_near(p, array_of(g.at("result")), dtype == DType::F64 ? 1e-12 : 1e-6);
  }
}

TEST(Muon, OrthogonalizesKnownMatrices) {
  for (auto& c : golden().at("orthogonalized")) {
    expect_near(orthogonal(array_of(c.at("x"))), array_of(c.at("result")), 1e-12);
    expect_near(orthogonal(array_of(c.at("x"), DType::F32)), array_of(c.at("result")), 1e-5);
    expect_near(orthogonal(array_of(c.at("x"), DType::F32), {.bf16 = true}), array_of(c.at("result")), 8e-2);
  }
  Array identity(std::vector<double>{1, 0, 0, 1}, {2, 2});
  expect_near(orthogonal(identity), Array(std::vector<double>{1.10811, 0, 0, 1.10811}, {2, 2}), 1e-5);
}

TEST(Muon, SingularValuesEndNearOne) {
  // Of the 3x2 result X, those of XᵀX are the squares.
  Array x = orthogonal(Array(std::vector<double>{1, 2, 3, 4, 5, 6}, {3, 2}));
  double a = 0, b = 0, c = 0;
  for (int r = 0; r < 3; ++r) {
    double u = x.at(2 * r), v = x.at(2 * r + 1);
    a += u * u, b += u * v, c += v * v;
  }
  double middle = (a + c) / 2, radius = std::sqrt((a - c) * (a - c) / 4 + b * b);
  EXPECT_NEAR(std::sqrt(middle + radius), 0.8176, 1e-4);
  EXPECT_NEAR(std::sqrt(middle - radius), 0.6980, 1e-4);
}

TEST(Muon, EdgesOfTheNormalisation) {
  Array zero = orthogonal(Array(DType::F32, {3, 2}));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(zero.at(i), 0);
  auto& c = golden().at("orthogonalized")[0];
  Array x = array_of(c.at("x"), DType::F32), small = x.clone(), tiny = x.clone();
  for (float& v : small.values<float>()) v *= 1e-3f;
  for (float& v : tiny.values<float>()) v *= 1e-9f;
  expect_near(orthogonal(small), orthogonal(x), 2e-5);
  double difference = 0;  // below ε the update fades
  Array faded = orthogonal(tiny), whole = orthogonal(x);
  for (std::int64_t i = 0; i < x.size(); ++i) difference = std::max(difference, std::abs(faded.at(i) - whole.at(i)));
  EXPECT_GT(difference, 0.1);
}

TEST(Muon, AgreesWithNumPyAndPyTorch) {
  for (auto& c : golden().at("muon")) {
    Muon muon;
    parse_field(c.at("scale").get<std::string>(), muon.scale);
    for (bool bf16 : {false, true}) {
      if (bf16 && !c.contains("torch")) continue;
      muon.bf16 = bf16;
      Step step(muon, array_of(c.at("param"), DType::F32), DType::F32);
      Array p;
      for (auto& g : c.at("gradients")) p = step.run(array_of(g, DType::F32), c.at("rate"), c.at("decay"));
      expect_near(p, array_of(c.at("result")), bf16 ? 1e-2 : 1e-5);
      if (c.contains("torch")) expect_near(p, array_of(c.at("torch")), 1e-2);
    }
  }
}

TEST(Muon, TheAxisOfOutputsSaysTheScale) {
  auto& c = golden().at("muon")[1];  // [6, 4], scale √(6/4)
  Array start = array_of(c.at("param")), g = array_of(c.at("gradients")[0]);
  Step rows(Muon{}, start, DType::F64), columns(Muon{.out_axis = 1}, start, DType::F64);
  Array a = rows.run(g, 0.1, 0), b = columns.run(g, 0.1, 0);
  for (std::int64_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a.at(i) - start.at(i), std::sqrt(1.5) * (b.at(i) - start.at(i)), 1e-12);
}

TEST(Muon, RefusesWhatItCannotOrthogonalize) {
  Graph graph;
  Node p = graph.param("bias", DType::F32, {3}), g = graph.input("g", DType::F32, {3}),
       lr = graph.input("lr", DType::F32, {});
  std::vector<StateNode> states;
  EXPECT_NE(message_of([&] {
              muon_update({}, p, g, {lr, lr, lr}, states);
            }).find("expected a 2-D param"),
            std::string::npos);
  Node w = graph.param("w", DType::F32, {3, 3});
  EXPECT_NE(message_of([&] {
              muon_update({}, w, g, {lr, lr, lr}, states);
            }).find("the gradient of"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              adamw_update({}, g, g, {lr, lr, lr}, states);
            }).find("expected a float param"),
            std::string::npos);
}

TEST(Clipping, ByGlobalNorm) {
  auto clipped = [](const Array& a, const Array& b, double limit) {
    Graph graph;
    Nodes g{graph.input("a", a.type()), graph.input("b", b.type())};
    Node norm = global_norm(g);
    Nodes out = clip_by_global_norm(g, norm, limit);
    out.push_back(norm);
    graph.set_outputs(out);
    return Session(Device::reference()).compile(graph).run({{"a", a}, {"b", b}});
  };
  auto out = clipped(Array(std::vector<float>{3, 0}, {2}), Array::scalar(4, DType::F32), 1);
  EXPECT_NEAR(out[0].at(0), 0.6, 1e-6);
  EXPECT_NEAR(out[1].at(0), 0.8, 1e-6);
  EXPECT_EQ(out[2].at(0), 5);
  out = clipped(Array(std::vector<float>{0.3f, 0}, {2}), Array::scalar(0.4, DType::F32), 1);  // short enough already
  EXPECT_EQ(out[0].at(0), 0.3f);
  // 5000² is infinite in f16; zero gradients stay zero.
  Array big = Array::scalar(5000, DType::F16), zero = Array::scalar(0, DType::F16);
  EXPECT_EQ(clipped(big, zero, 1)[0].at(0), 1);
  EXPECT_EQ(clipped(zero, zero, 1)[0].at(0), 0);
}
