#include "train/trainer.h"

#include <fmt/format.h>

#include <optional>

#include "passes/passes.h"
#include "rlx/ops.h"
#include "rlx/transform.h"
#include "train/schedule.h"

namespace rlx {
namespace {

Muon muon_of(const TrainConfig& c) {
  Muon muon{.momentum = c.momentum, .bf16 = c.muon_bf16};
  parse_field(c.muon_scale, muon.scale);
  return muon;
}

// What all params take, or beside Muon those that are no linear weights.
Optimizer optimizer_of(const TrainConfig& c) {
  if (c.optimizer == "sgd") return Sgd{.momentum = c.momentum};
  if (c.optimizer == "lion") return Lion{c.beta1, c.beta2};
  if (c.optimizer == "adafactor") return Adafactor{};
  if (c.optimizer == "lamb") return Lamb{c.beta1, c.beta2, c.epsilon};
  return AdamW{c.beta1, c.beta2, c.epsilon};
}

// Norms, the embedding and indices are no linear weights; indices are not trained at all.
std::vector<ParamInfo> float_params(const ModelConfig& c) {
  auto out = trained_params(c);
  std::erase_if(out, [](auto& p) { return p.dtype != DType::F32; });
  return out;
}

// The loss and the gradients of all params, added to the training graph. One sweep a batch, one after the other, so
// that the memory of one serves the next.
struct Gradients {
  Node loss;
  Nodes of_params;
};
Gradients add_gradients(Graph graph, const TrainConfig& c, const Nodes& params, const LossScaler* scaler) {
  Gradients out{none, Nodes(params.size())};
  for (Node part : Nodes(graph.outputs())) {
    out.loss = out.loss ? out.loss + part : part;
    Nodes g = grad(part, params, scaler ? scaler->seed(part) : none);
    for (std::size_t i = 0; i < g.size(); ++i) out.of_params[i] = out.of_params[i] ? out.of_params[i] + g[i] : g[i];
  }
  if (c.accumulation == 1) return out;
  double share = 1.0 / double(c.accumulation);
  out.loss = out.loss * share;
  for (Node& g : out.of_params) g = g * share;
  return out;
}

}  // namespace

StepGraph step_graph(const TrainConfig& c) {
  Graph graph = training_graph(c.model, c.batch_size, c.model.context_length, c.accumulation);
  auto params = float_params(c.model);
  Nodes leaves;
  for (auto& p : params) leaves.push_back(graph.find_leaf(p.name));
  std::optional<LossScaler> scaler;
  if (precision(c.model.precision).scales_loss) scaler.emplace(graph);
  auto [loss, gradients] = add_gradients(graph, c, leaves, scaler ? &*scaler : nullptr);
  if (scaler) gradients = scaler->unscale(gradients);

  auto scalar = [&](const char* name) { return graph.input(name, DType::F32, {}); };
  Node rate = scalar("learning_rate"), muon_rate = c.optimizer == "muon" ? scalar("muon_learning_rate") : none;
  Node decay = scalar("weight_decay"), step = scalar("step"), no_decay = graph.constant(0, DType::F32);
  if (scaler) step = scaler->step();
  Node norm = global_norm(gradients);
  if (c.clip_norm > 0) gradients = clip_by_global_norm(gradients, norm, c.clip_norm);

  Nodes outputs{loss, norm};
  StepGraph out{graph, {}, {}};
  auto carry = [&](Node param, Node next) {
    out.updates.push_back({param.name(), int(outputs.size())});
    outputs.push_back(next);
  };
  auto update = [&](Node param, Node next) { carry(param, scaler ? scaler->guarded(param, next) : next); };
  Optimizer optimizer = optimizer_of(c);
  for (std::size_t i = 0; i < params.size(); ++i) {
    std::vector<StateNode> states;
    // Norms and the embedding do not decay.
    StepNodes nodes{rate, params[i].is_linear ? decay : no_decay, step};
    bool by_muon = c.optimizer == "muon" && params[i].is_linear;
    if (by_muon) nodes.learning_rate = muon_rate;
    update(leaves[i], by_muon ? muon_update(muon_of(c), leaves[i], gradients[i], nodes, states)
                              : optimizer_update(optimizer, leaves[i], gradients[i], nodes, states));
    for (auto& s : states) {
      update(s.param, s.next);
      out.states.push_back(s.param.name());
    }
  }
  if (scaler)
    for (auto& s : scaler->states()) {
      carry(s.param, s.next);
      out.states.push_back(s.param.name());
    }
  graph.set_outputs(outputs);
  out.graph = collapse_straight_through(graph).graph;
  return out;
}

Trainer::Trainer(const TrainConfig& config, Device device)
    : config_(config),
      step_(step_graph(config)),
      graph_(Session(std::move(device)).compile(step_.graph, {.name = "train_step", .updates = step_.updates})) {}

void Trainer::set_weights(const Tensors& weights) {
  for (auto& [name, value] : weights) graph_.set_param(name, value);
}

void Trainer::set_optimizer(const Tensors& tensors, const std::string& where) {
  for (auto& name : step_.states) {
    Type expected = step_.graph.find_leaf(name).type();
    auto found = tensors.find(name);
    if (tensors.empty()) {
      graph_.set_param(name, Array(expected.dtype, to_extents(expected.shape)));
    } else if (found == tensors.end()) {
      throw UserError(fmt::format("[checkpoint] {}: tensor \"{}\" is missing", where, name));
    } else if (found->second.type() != expected) {
      throw UserError(fmt::format("[checkpoint] {}: tensor \"{}\" is {}, expected {}", where, name,
                                  to_string(found->second.type()), to_string(expected)));
    } else {
      graph_.set_param(name, found->second);
    }
  }
  if (tensors.size() > step_.states.size())
    throw UserError(
        fmt::format("[checkpoint] {}: has {} tensors, expected {}", where, tensors.size(), step_.states.size()));
}

Tensors Trainer::weights() const {
  Tensors out;
  for (auto& p : trained_params(config_.model)) out.emplace(p.name, graph_.param(p.name));
  return out;
}

Tensors Trainer::optimizer() const {
  Tensors out;
  for (auto& name : step_.states) out.emplace(name, graph_.param(name));
  return out;
}

double Trainer::learning_rate_at(std::int64_t step, std::int64_t steps) const {
  double rate = config_.optimizer == "muon" ? config_.muon_learning_rate : config_.learning_rate;
  return rate * schedule_at(config_.schedule, step, steps, config_.warmup_steps).learning_rate;
}

StepResult Trainer::run_step(const Array& tokens, std::int64_t step, std::int64_t steps) {
  auto factors = schedule_at(config_.schedule, step, steps, config_.warmup_steps);
  auto scalar = [](double v) { return Array::scalar(v, DType::F32); };
  ArrayMap inputs{{"tokens", tokens},
                  {"learning_rate", scalar(config_.learning_rate * factors.learning_rate)},
                  {"weight_decay", scalar(config_.weight_decay * factors.weight_decay)},
                  {"step", scalar(double(step + 1))}};
  if (config_.optimizer == "muon")
    inputs.emplace("muon_learning_rate", scalar(config_.muon_learning_rate * factors.learning_rate));
  auto out = graph_.run_read_outputs(inputs, {0, 1});
  return {out[0].at(0), out[1].at(0)};
}

}  // namespace rlx
