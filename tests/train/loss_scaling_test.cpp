// Dynamic loss scaling: a step with a gradient that is not finite changes nothing but the scale.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "message_of.h"
#include "rlx/ops.h"
#include "rlx/train.h"
#include "rlx/transform.h"

using namespace rlx;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One f32 param under AdamW, its gradient fed as f16; the fed gradient stands for that of the scaled loss.
class Step {
 public:
  explicit Step(const Device& device, const LossScaling& config = {}, double max_norm = 0) {
    Graph graph;
    Node p = graph.param("p", DType::F32, {3}), g = graph.input("g", DType::F16, {3});
    LossScaler scaler(graph, config);
    Nodes gradients = scaler.unscale({g});
    Node norm = global_norm(gradients);
    if (max_norm > 0) gradients = clip_by_global_norm(gradients, norm, max_norm);
    std::vector<StateNode> states;
    StepNodes nodes{graph.input("lr", DType::F32, {}), graph.constant(0, DType::F32), scaler.step()};
    Nodes outputs{norm, gradients[0], scaler.finite(), scaler.scale()};
    std::vector<Update> updates;
    auto carry = [&](Node param, Node next) {
      updates.push_back({param.name(), int(outputs.size())});
      outputs.push_back(next);
    };
    carry(p, scaler.guarded(p, adamw_update({}, p, gradients[0], nodes, states)));
    for (auto& s : states) carry(s.param, scaler.guarded(s.param, s.next));
    for (auto& s : scaler.states()) carry(s.param, s.next);
    graph.set_outputs(outputs);
    graph.verify();
    compiled_ = std::make_unique<CompiledGraph>(Session(device).compile(graph, {.name = "step", .updates = updates}));
    for (Node leaf : graph.params()) compiled_->set_param(leaf.name(), Array(DType::F32, to_extents(leaf.shape())));
    compiled_->set_param("p", Array(std::vector<float>{1, -2, 3}, {3}));
  }
  std::vector<Array> run(std::vector<float> g) {
    return compiled_->run({{"g", Array(g, {3}).cast(DType::F16)}, {"lr", Array::scalar(0.1, DType::F32)}});
  }
  double scale() const { return get("loss_scale.scale").at(0); }
  double good_steps() const { return get("loss_scale.good_steps").at(0); }
  double step() const { return get("loss_scale.step").at(0); }
  Array get(const char* name) const { return compiled_->param(name); }

 private:
  std::unique_ptr<CompiledGraph> compiled_;
};

void expect_same_bits(const Array& a, const Array& b) {
  ASSERT_EQ(a.byte_size(), b.byte_size());
  EXPECT_EQ(std::memcmp(a.bytes(), b.bytes(), a.byte_size()), 0);
}
class LossScalingOn : public testing::TestWithParam<std::string> {
 protected:
  Device device() const { return {GetParam()}; }
};

}  // namespace

TEST_P(LossScalingOn, AStepThatIsNotFiniteChangesNothingButTheScale) {
  Step s(device());
  EXPECT_EQ(s.run({1, 2, 3})[2].at(0), 1);
  EXPECT_EQ(s.scale(), 65536);
  EXPECT_EQ(s.step(), 1);
  EXPECT_EQ(s.good_steps(), 1);
  for (float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    Array p = s.get("p"), m = s.get("adamw.m.p"), v = s.get("adamw.v.p");
    double scale = s.scale();
    EXPECT_EQ(s.run({1, bad, 3})[2].at(0), 0);
    expect_same_bits(s.get("p"), p);
    expect_same_bits(s.get("adamw.m.p"), m);
    expect_same_bits(s.get("adamw.v.p"), v);
    EXPECT_EQ(s.step(), 1);
    EXPECT_EQ(s.good_steps(), 0);
    EXPECT_EQ(s.scale(), scale / 2);
  }
  s.run({1, 2, 3});
  EXPECT_EQ(s.step(), 2);
  EXPECT_EQ(s.good_steps(), 1);
}

TEST_P(LossScalingOn, GrowsAfterGoodStepsWithinItsBounds) {
  LossScaling c{.initial = 8, .least = 4, .most = 32, .growth_interval = 2};
  Step s(device(), c);
  std::vector<double> scales;
  for (int i = 0; i < 8; ++i) s.run({1, 1, 1}), scales.push_back(s.scale());
  EXPECT_EQ(scales, (std::vector<double>{8, 16, 16, 32, 32, 32, 32, 32}));
  scales.clear();
  for (int i = 0; i < 5; ++i) s.run({kInfinity, 1, 1}), scales.push_back(s.scale());
  EXPECT_EQ(scales, (std::vector<double>{16, 8, 4, 4, 4}));
  s.run({1, 1, 1}), s.run({kInfinity, 1, 1}), s.run({1, 1, 1});  // a bad step starts the count anew
  EXPECT_EQ(s.scale(), 4);
  s.run({1, 1, 1});
  EXPECT_EQ(s.scale(), 8);
}

TEST_P(LossScalingOn, ScalingIsExactAndTheStepIsAdamsOwn) {
  // Scaled gradients g · 65536 would be infinite in f16, so the scale here is 256.
  Step s(device(), {.initial = 256});
  auto out = s.run({256, -512, 64});
  expect_same_bits(out[1], Array(std::vector<float>{1, -2, 0.25f}, {3}));
  // The first step of AdamW is ±lr, whatever came before it.
  for (auto [got, expected] : {std::pair{s.get("p").at(0), 0.9}, {s.get("p").at(1), -1.9}, {s.get("p").at(2), 2.9}})
    EXPECT_NEAR(got, expected, 1e-6);
  Step late(device(), {.initial = 256});
  late.run({kInfinity, 0, 0}), late.run({128, -256, 32});  // at half the scale
  expect_same_bits(late.get("p"), s.get("p"));
}

TEST_P(LossScalingOn, NormsAreTakenInF32) {
  Step s(device(), {.initial = 1}, 1);
  auto out = s.run({5000, 0, 0});  // 5000² is infinite in f16
  EXPECT_EQ(out[0].at(0), 5000);
  EXPECT_NEAR(out[1].at(0), 1, 1e-6);
  out = s.run({0, 0, 0});
  EXPECT_EQ(out[0].at(0), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(out[1].at(i), 0);
  EXPECT_EQ(out[2].at(0), 1);
}

// Finite gradients whose squares are not are finite.
TEST_P(LossScalingOn, TellsFiniteByTheGradientsThemselves) {
  Graph graph;
  Node g = graph.input("g", DType::F32, {2});
  LossScaler scaler(graph, {.initial = 1});
  scaler.unscale({g});
  graph.set_outputs({scaler.finite()});
  CompiledGraph c = Session(device()).compile(graph);
  for (Node leaf : graph.params()) c.set_param(leaf.name(), Array(DType::F32, {}));
  EXPECT_EQ(c.run({{"g", Array(std::vector<float>{3e38f, -3e38f}, {2})}})[0].at(0), 1);
  EXPECT_EQ(c.run({{"g", Array(std::vector<float>{3e38f, kInfinity}, {2})}})[0].at(0), 0);
}

// The whole of it: y = w·x in f16 with a loss whose gradient overflows there until the scale is small enough.
TEST_P(LossScalingOn, FindsAScaleThatFits) {
  Graph graph;
  Node x = graph.input("x", DType::F32, {4, 4}), w = graph.param("w", DType::F32, {4, 4});
  Node y = matmul(x, w);
  graph.set_outputs({sum(y * 1000, {0, 1})});
  graph = auto_mixed_precision(graph, {.dtype = DType::F16}).graph;
  Node loss = graph.outputs()[0];
  w = graph.find_leaf("w");
  LossScaler scaler(graph, {.initial = 65536});
  Nodes g = scaler.unscale(grad(loss, {w}, scaler.seed(loss)));
  Nodes outputs{g[0], scaler.finite(), scaler.guarded(w, w - 0.001 * g[0])};
  std::vector<Update> updates{{"w", 2}};
  for (auto& s : scaler.states()) {
    updates.push_back({s.param.name(), int(outputs.size())});
    outputs.push_back(s.next);
  }
  graph.set_outputs(outputs);
  CompiledGraph c = Session(device()).compile(graph, {.updates = updates, .strict_rounding = true});
  for (Node leaf : graph.params()) c.set_param(leaf.name(), Array(DType::F32, to_extents(leaf.shape())));
  Array ones(DType::F32, {4, 4});
  for (float& v : ones.values<float>()) v = 1;
  int skipped = 0;
  for (; skipped < 20; ++skipped) {
    auto out = c.run({{"x", ones}});
    if (out[1].at(0) == 1) {
      EXPECT_EQ(out[0].at(0), 4000);
      break;
    }
    EXPECT_EQ(c.param("w").at(0), 0);
  }
  EXPECT_EQ(skipped, 12);  // 4000 · 16 is the first below 65504
  EXPECT_EQ(c.param("loss_scale.scale").at(0), 16);
  EXPECT_EQ(c.param("w").at(0), -4);
}

INSTANTIATE_TEST_SUITE_P(Devices, LossScalingOn, testing::Values("reference", "cpu"),
                         [](auto& info) { return info.param; });

TEST(LossScaling, SaysWhatIsWrong) {
  auto with = [](LossScaling c) {
    return message_of([&] { LossScaler(Graph(), c); });
  };
  EXPECT_EQ(with({.initial = 0}), "[loss_scaling] got initial 0, expected a finite number above 0");
  EXPECT_EQ(with({.backoff = 1}), "[loss_scaling] got backoff 1, expected a number between 0 and 1");
  EXPECT_EQ(with({.growth = 0.5}), "[loss_scaling] got growth 0.5, expected a finite number not below 1");
  EXPECT_EQ(with({.initial = 2, .least = 4}), "[loss_scaling] got initial 2, expected a number within [least, most]");
  EXPECT_EQ(with({.growth_interval = 0}), "[loss_scaling] got growth_interval 0, expected a number from 1 to 16777216");
  Graph graph;
  LossScaler scaler(graph);
  Node half = graph.input("half", DType::F16, {});
  EXPECT_NE(message_of([&] { scaler.seed(half); }).find("expected f32, bf16 or f64, which can hold the scale"),
            std::string::npos);
  EXPECT_EQ(message_of([&] { scaler.finite(); }), "[loss_scaling] unscale has not been called");
  EXPECT_EQ(message_of([&] { scaler.unscale({}); }), "[loss_scaling] got no gradients");
  scaler.unscale({half});
  EXPECT_NE(message_of([&] { scaler.unscale({half}); }).find("a second time"), std::string::npos);
  EXPECT_NE(message_of([&] { LossScaler again(graph); }).find("is taken"), std::string::npos);
}
