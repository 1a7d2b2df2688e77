// Gradients are graphs. The backward parts of activations and of batch normalisation are ops of their own, which a
// device may run as they are and lower_backward_ops takes apart.
#include <cmath>
#include <cstdio>

#include "rlx/rlx.h"

using namespace rlx;

static bool holds(bool yes, const char* what) { return std::printf("%s: %s\n", yes ? "ok" : "FAILED", what), yes; }

static Array values(Extents shape, double frequency, double offset = 0) {
  Array out(DType::F64, std::move(shape));
  for (std::int64_t i = 0; i < out.size(); ++i)
    out.values<double>()[std::size_t(i)] = offset + std::sin(frequency * double(i + 1));
  return out;
}

static int backward_ops(const Graph& graph, bool print) {
  int n = 0;
  for (int id = 0; id < graph.size(); ++id)
    if (graph.node(id).op().backward && ++n && print) std::printf("  %s\n", graph.node(id).op().name.data());
  return n;
}

int main() {
  // loss = Σ gelu(batch_norm(x))² of an image batch in NHWC order: the channels are the last axis.
  Graph model;
  Node x = model.input("x", DType::F64, {2, 3, 3, 4});
  Node gamma = model.param("gamma", DType::F64, {4}), beta = model.param("beta", DType::F64, {4});
  Node mean = model.param("mean", DType::F64, {4}), var = model.param("var", DType::F64, {4});
  model.param("unused", DType::F64, {4});
  Node y = gelu(batch_norm_inference(x, gamma, beta, mean, var, -1).named("normalised")).named("active");
  model.set_outputs({sum(y * y, {0, 1, 2, 3})});

  // [loss, d loss / d x, …] with an input more: d_output, the cotangent that seeds the sweep.
  const std::vector<std::string> wrt{"x", "gamma", "beta", "unused"};
  Graph back = grad_with_loss(model, wrt);
  std::printf("backward ops:\n");
  bool ok = holds(backward_ops(back, true) == 4, "one of gelu, three of batch normalisation");
  Graph lowered = lower_backward_ops(back);
  ok &= holds(backward_ops(lowered, false) == 0, "lower_backward_ops leaves none");
  ok &= holds(bool(lowered.find("normalised")) && bool(lowered.find("active")), "and keeps every name");
  ok &= holds(same(lower_backward_ops(lowered), lowered), "a graph without them comes back as it is");

  ArrayMap feeds{{"x", values({2, 3, 3, 4}, 0.3)}, {"gamma", values({4}, 1.1, 1)}, {"beta", values({4}, 0.7)},
                 {"mean", values({4}, 0.5)},       {"var", values({4}, 0.9, 2)},   {"unused", values({4}, 1)}};
  auto run = [&](const Graph& graph, const Device& device) {
    CompiledGraph compiled = Session(device).compile(graph);
    ArrayMap inputs{{"x", feeds.at("x")}};
    if (graph.find_leaf("d_output")) inputs.emplace("d_output", Array::scalar(1, DType::F64));
    for (Node p : graph.params()) compiled.set_param(p.name(), feeds.at(p.name()));
    return compiled.run(inputs);
  };
  auto gradients = run(back, Device::cpu()), expanded = run(lowered, Device::cpu());
  double apart = 0, off = 0;
  for (std::size_t k = 0; k < gradients.size(); ++k)
    for (std::int64_t i = 0; i < gradients[k].size(); ++i)
      apart = std::max(apart, std::fabs(gradients[k].at(i) - expanded[k].at(i)));
  ok &= holds(apart < 1e-12, "whole or taken apart, the gradient is the same");

  // Against central differences of the loss.
  for (std::size_t k = 0; k + 1 < wrt.size(); ++k)
    for (std::size_t i = 0; i < std::size_t(feeds.at(wrt[k]).size()); ++i) {
      double &v = feeds.at(wrt[k]).values<double>()[i], middle = v;
      v = middle + 1e-5;
      double above = run(model, Device::reference())[0].at(0);
      v = middle - 1e-5;
      double below = run(model, Device::reference())[0].at(0);
      off = std::max(off, std::fabs((above - below) / 2e-5 - gradients[k + 1].at(std::int64_t(i))));
      v = middle;
    }
  std::printf("farthest from a central difference: %.1e\n", off);
  ok &= holds(off < 1e-6, "it is the derivative");
  for (std::int64_t i = 0; i < 4; ++i) off = std::max(off, 1e9 * std::fabs(gradients[4].at(i)));
  ok &= holds(off < 1e-6, "what the loss does not depend on has gradient zero");
  return ok ? 0 : 1;
}
