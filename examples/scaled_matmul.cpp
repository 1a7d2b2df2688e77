// FP8, MX and NVFP4: a matmul on 8- and 4-bit codes with scales, put in by a pass and trained straight through.
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

static int count(const Graph& graph, const OpDef& op) {
  int n = 0;
  for (int id = 0; id < graph.size(); ++id) n += graph.node(id).is(op);
  return n;
}

static double apart(const Array& a, const Array& b) {
  double off = 0, all = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) off += std::pow(a.at(i) - b.at(i), 2), all += std::pow(b.at(i), 2);
  return std::sqrt(off / all);
}

int main() {
  // Two layers read the same activations: these are quantised once. No size is a multiple of a block.
  const Array x = values({20, 70}, 0.37), w1 = values({70, 33}, 1.3), w2 = values({70, 15}, 0.7);
  Graph model;
  Node in = model.input("x", x.type());
  Node a = matmul(in, model.param("w1", w1.type())).named("a"), b = matmul(in, model.param("w2", w2.type())).named("b");
  model.set_outputs({sum(a * a, {0, 1}) + sum(b * b, {0, 1}), a, b});

  auto run = [&](const Graph& graph, const std::vector<int>& outputs, std::string* report = nullptr) {
    CompiledGraph compiled = Session(Device::cpu()).compile(graph);
    compiled.set_param("w1", w1);
    compiled.set_param("w2", w2);
    ArrayMap inputs{{"x", x}};
    if (graph.find_leaf("d_output")) inputs.emplace("d_output", Array::scalar(1, DType::F32));
    auto out = compiled.run_read_outputs(inputs, outputs);
    if (report) *report = compiled.report();
    return out;
  };
  auto exact = run(model, {1, 2}), exact_gradient = run(grad_with_loss(model, {"w1"}), {1});

  bool ok = true;
  struct {
    const char* name;
    ScaledMatmulConfig config;
    double error;  // of a product, as far as these formats go
  } formats[] = {{"fp8_e4m3", ScaledMatmulConfig::fp8_e4m3(), 0.05},
                 {"mxfp8_e4m3", ScaledMatmulConfig::mxfp8_e4m3(), 0.05},
                 {"mxfp4", ScaledMatmulConfig::mxfp4(), 0.25},
                 {"nvfp4", ScaledMatmulConfig::nvfp4(), 0.2}};
  for (auto& f : formats) {
    auto [scaled, report] = insert_scaled_matmul(model, f.config);
    std::string plan;
    auto got = run(scaled, {1, 2}, &plan);
    Array gradient = run(grad_with_loss(scaled, {"w1"}), {1})[0];
    double error = std::max(apart(got[0], exact[0]), apart(got[1], exact[1]));
    std::printf("%-11s %d matmuls rewritten, %d tensors quantised, error of the product %.3f, of the gradient %.3f\n",
                f.name, int(report.rewritten.size()), report.quantized, error, apart(gradient, exact_gradient[0]));
    ok &= holds(count(scaled, ops::matmul) == 0 && count(scaled, ops::scaled_matmul) == 2 &&
                    count(scaled, ops::scaled_quantize) == 3,
                "two products of three tensors in codes");
    ok &= holds(error > 0 && error < f.error && apart(gradient, exact_gradient[0]) < 2 * f.error,
                "as near as the format allows");
    ok &= holds(plan.find("kept ") != std::string::npos, "weights are quantised when they are set, not at each run");
  }
  // What stays in full precision is said by name, and the report says what was left alone.
  auto [partly, report] = insert_scaled_matmul(model, {.keep_full_precision = {"w2"}});
  for (auto& s : report.skipped) std::printf("left alone: %s, because %s\n", s.node.c_str(), s.reason.c_str());
  ok &= holds(count(partly, ops::matmul) == 1 && report.skipped.size() == 1, "w2 stays in f32");
  return ok ? 0 : 1;
}
