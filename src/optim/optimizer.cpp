// What holds for all optimizers: their names, checks and defaults, and norms of gradients.
#include <fmt/format.h>

#include <cmath>

#include "optim/define.h"

namespace rlx {
namespace {

constexpr std::string_view kNames[] = {"sgd", "adamw", "muon", "lion", "adafactor", "lamb"};
static_assert(std::size(kNames) == std::variant_size_v<Optimizer>);

Axes all_axes(Node x) {
  Axes out;
  for (int i = 0; i < x.rank(); ++i) out.push_back(i);
  return out;
}

Node update(const Sgd& o, Node p, Node g, const StepNodes& s, std::vector<StateNode>& states) {
  return sgd_update(o, p, g, s, states);
}
Node update(const AdamW& o, Node p, Node g, const StepNodes& s, std::vector<StateNode>& states) {
  return adamw_update(o, p, g, s, states);
}
Node update(const Muon& o, Node p, Node g, const StepNodes& s, std::vector<StateNode>& states) {
  return muon_update(o, p, g, s, states);
}
Node update(const Lion& o, Node p, Node g, const StepNodes& s, std::vector<StateNode>& states) {
  return lion_update(o, p, g, s, states);
}
Node update(const Adafactor& o, Node p, Node g, const StepNodes& s, std::vector<StateNode>& states) {
  return adafactor_update(o, p, g, s, states);
}
Node update(const Lamb& o, Node p, Node g, const StepNodes& s, std::vector<StateNode>& states) {
  return lamb_update(o, p, g, s, states);
}

}  // namespace

// ---------------------------------------------------------------------------------------------- by name

std::string_view optimizer_name(const Optimizer& optimizer) { return kNames[optimizer.index()]; }

Optimizer optimizer_from_string(std::string_view name) {
  if (name == kNames[0]) return Sgd{};
  if (name == kNames[1]) return AdamW{};
  if (name == kNames[2]) return Muon{};
  if (name == kNames[3]) return Lion{};
  if (name == kNames[4]) return Adafactor{};
  if (name == kNames[5]) return Lamb{};
  throw UserError(fmt::format("there is no optimizer \"{}\", expected one of {}", name, fmt::join(kNames, ", ")));
}

void check_optimizer(const Optimizer& optimizer) {
  std::visit([](auto& o) { check_settings(o); }, optimizer);
}

OptimizerStep default_step(const Optimizer& optimizer) {
  if (std::holds_alternative<Muon>(optimizer)) return {.learning_rate = 1e-3, .weight_decay = 0.1};
  if (std::holds_alternative<AdamW>(optimizer)) return {.learning_rate = 1e-3, .weight_decay = 0.01};
  if (std::holds_alternative<Lion>(optimizer)) return {.learning_rate = 1e-4, .weight_decay = 0};
  if (std::holds_alternative<Adafactor>(optimizer)) return {.learning_rate = 1e-2, .weight_decay = 0};
  if (std::holds_alternative<Lamb>(optimizer)) return {.learning_rate = 1e-3, .weight_decay = 0.01};
  return {.learning_rate = 1e-3, .weight_decay = 0};
}

Node optimizer_update(const Optimizer& optimizer, Node param, Node gradient, const StepNodes& s,
                      std::vector<StateNode>& states) {
  return std::visit([&](auto& o) { return update(o, param, gradient, s, states); }, optimizer);
}

// ---------------------------------------------------------------------------------------------- shared by their files

void check_update(std::string_view optimizer, Node param, Node gradient) {
  if (!param.is(param_op) || !is_float(param.dtype()))
    throw UserError(fmt::format("[{}] got {}, expected a float param", optimizer, param.text()));
  if (gradient.shape() != param.shape())
    throw UserError(fmt::format("[{}] the gradient of {} is {}, expected {}", optimizer, param.text(),
                                to_string(gradient.type()), to_string(param.type())));
}

void check_share(std::string_view optimizer, std::string_view setting, double value) {
  if (!(value >= 0 && value < 1))
    throw UserError(fmt::format("[{}] got {} {}, expected 0 or more and less than 1", optimizer, setting, value));
}
void check_size(std::string_view optimizer, std::string_view setting, double value) {
  if (!(value >= 0) || !std::isfinite(value))
    throw UserError(fmt::format("[{}] got {} {}, expected 0 or more", optimizer, setting, value));
}

Node new_state(std::string_view prefix, Node param, Shape shape) {
  return param.graph().param(fmt::format("{}.{}", prefix, param.name()), state_dtype(param.dtype()), std::move(shape));
}
Node new_state(std::string_view prefix, Node param) { return new_state(prefix, param, param.shape()); }

Node bias_correction(double beta, Node step) { return beta == 0 ? Node(1) : -expm1(step * std::log(beta)); }
Node sum_of_squares(Node x) { return sum(x * x, all_axes(x)); }

void check_settings(const AdamSettings& o) {
  check_share(o.optimizer, "beta1", o.beta1);
  check_share(o.optimizer, "beta2", o.beta2);
  check_size(o.optimizer, "epsilon", o.epsilon);
}

Node adam_direction(const AdamSettings& o, Node param, Node g, Node step, std::vector<StateNode>& states) {
  Node m = new_state(fmt::format("{}.m", o.optimizer), param), v = new_state(fmt::format("{}.v", o.optimizer), param);
  Node new_m = o.beta1 * m + (1 - o.beta1) * g, new_v = o.beta2 * v + (1 - o.beta2) * (g * g);
  states.push_back({m, new_m});
  states.push_back({v, new_v});
  return (new_m / bias_correction(o.beta1, step)) / (sqrt(new_v / bias_correction(o.beta2, step)) + o.epsilon);
}

// ---------------------------------------------------------------------------------------------- norms

Node global_norm(const Nodes& gradients) {
  Node total;
  for (Node g : gradients) {
    Node part = sum_of_squares(widened(g));
    total = total ? total + part : part;
  }
  if (!total) throw UserError("[global_norm] got no gradients");
  return sqrt(total);
}

Nodes clip_by_global_norm(const Nodes& gradients, Node norm, double max_norm) {
  Node scale = minimum(max_norm / (norm + 1e-6), 1);
  Nodes out;
  for (Node g : gradients) out.push_back(narrowed(widened(g) * scale, g));
  return out;
}

}  // namespace rlx
