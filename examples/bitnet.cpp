// BitNet b1.58: a float model becomes one that trains ternary weights and int8 activations, and what is exported is to
// the bit what the forward pass used.
#include <cmath>
#include <cstdio>

#include "rlx/rlx.h"

using namespace rlx;

static bool holds(bool yes, const char* what) { return std::printf("%s: %s\n", yes ? "ok" : "FAILED", what), yes; }

static Array values(Extents shape, double frequency) {
  Array out(DType::F32, std::move(shape));
  for (std::int64_t i = 0; i < out.size(); ++i)
    out.values<float>()[std::size_t(i)] = float(std::sin(frequency * double(i * i + 1)));
  return out;
}

int main() {
  // A float model: two layers, which learn to give back half of what they are given.
  Graph model;
  Node x = model.input("x", DType::F32, {16, 8}), target = slice_axis(x, 1, 0, 4);
  Node hidden = relu(matmul(x, model.param("w1", DType::F32, {8, 32})).named("hidden"));
  Node error = matmul(hidden, model.param("head", DType::F32, {32, 4})).named("output") - target;
  model.set_outputs({mean(error * error, {0, 1})});

  // Its first weight becomes ternary, the head stays as it is. The report says what was done.
  BitNetConfig config;
  config.keep_full_precision = {"head"};
  auto [qat, report] = inject_bitnet_qat(model, config);
  for (auto& name : report.ternary_weights) std::printf("ternary: %s\n", name.c_str());
  for (auto& s : report.skipped) std::printf("left alone: %s, because %s\n", s.node.c_str(), s.reason.c_str());
  bool ok = holds(report.ternary_weights == std::vector<std::string>{"w1"} && report.quantized_activations == 1,
                  "the report");

  // A training step: gradients pass straight through the rounding, AdamW updates the float weights on the device.
  Node ternary = qat.find("hidden").input(1);
  qat.add_output(ternary);
  Graph step = grad_with_loss(qat, {"w1", "head"});
  StepNodes rates{step.constant(0.02, DType::F32), step.constant(0, DType::F32), step.input("step", DType::F32, {})};
  Nodes outputs{step.outputs()[0], step.find("hidden").input(1)};
  std::vector<Update> updates;
  std::vector<StateNode> states;
  for (const char* name : {"w1", "head"}) {
    Node weight = step.find_leaf(name), gradient = step.outputs()[updates.size() + 1];
    updates.push_back({name, int(outputs.size())});
    outputs.push_back(adamw_update({}, weight, gradient, rates, states));
  }
  for (auto& s : states) updates.push_back({s.param.name(), int(outputs.size())}), outputs.push_back(s.next);
  step.set_outputs(outputs);

  CompiledGraph trainer = Session(Device::cpu()).compile(step, {.name = "step", .updates = updates});
  trainer.set_param("w1", values({8, 32}, 1.3));
  trainer.set_param("head", values({32, 4}, 0.7));
  for (auto& s : states) trainer.set_param(s.param.name(), Array(DType::F32, to_extents(s.param.shape())));
  double first = 0, last = 0;
  for (int i = 1; i <= 200; ++i) {
    Array before = trainer.param("w1");
    auto result = trainer.run_read_outputs({{"x", values({16, 8}, 0.31)},
                                            {"d_output", Array::scalar(1, DType::F32)},
                                            {"step", Array::scalar(i, DType::F32)}},
                                           {0, 1});
    last = result[0].at(0), first = i == 1 ? last : first;
    if (i % 50 != 0) continue;
    // What export writes: codes -1, 0, 1 and one scale, from the float weight alone.
    Ternary exported = ternarize(before, config);
    bool same = true;
    for (std::int64_t k = 0; k < before.size(); ++k)
      same &= float(exported.codes.at(k)) * float(exported.scales.at(0)) == float(result[1].at(k));
    std::printf("step %3d: loss %.4f, scale %.4f\n", i, last, exported.scales.at(0));
    ok &= holds(same, "codes times scale are what the forward pass used");
  }
  ok &= holds(last < 0.2 * first, "it learns");
  return ok ? 0 : 1;
}
