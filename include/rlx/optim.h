// Optimizers: each a config and, as nodes of a graph, what it makes of a param and its gradient. Which param takes which
// one is said by groups. CompiledGraph (rlx/session.h) and HostOptimizer run them; a training step may contain them.
#pragma once
#include <functional>
#include <map>
#include <variant>

#include "rlx/graph.h"

namespace rlx {

/// How far Muon steps: times √max(1, out/in), 0.2·√max(out, in) (steps as long as AdamW's), or 1.
enum class MuonScale : std::uint8_t { Original, MatchRmsAdamw, None };
std::span<const std::string_view> enum_names(MuonScale);

/// Gradient descent with momentum: m ← μ·m + (1 − dampening)·g, at the first step m ← g; the step is m, with Nesterov
/// g + μ·m. Decay is decoupled and multiplied by the learning rate; coupled, λ·p is added to the gradient.
struct Sgd {
  double momentum = 0, dampening = 0;
  bool nesterov = false;  // needs momentum and no dampening
  bool coupled_decay = false;
  bool operator==(const Sgd&) const = default;
};

/// AdamW (Loshchilov, Hutter, 2019): decay is decoupled and multiplied by the learning rate, both moments are corrected
/// for their bias, ε is added after the square root.
struct AdamW {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  bool operator==(const AdamW&) const = default;
};

/// Muon (Jordan and others, 2024): momentum whose update is orthogonalised by Newton-Schulz steps. For 2-D params.
struct Muon {
  double momentum = 0.95, epsilon = 1e-7;
  int steps = 5;
  bool nesterov = true;
  MuonScale scale = MuonScale::Original;
  bool bf16 = false;     // the Newton-Schulz steps in bf16, as torch.optim.Muon does
  int out_axis = 0;      // the axis of outputs: 0 of [out, in], 1 of [in, out]
  bool flatten = false;  // takes params of more axes, a convolution's, as [out, -1]
  bool operator==(const Muon&) const = default;
};

/// Lion (Chen and others, 2023): the step is sign(β1·m + (1 − β1)·g), then m ← β2·m + (1 − β2)·g. Decay is decoupled.
struct Lion {
  double beta1 = 0.9, beta2 = 0.99;
  bool operator==(const Lion&) const = default;
};

/// Adafactor (Shazeer, Stern, 2018) as torch.optim.Adafactor: of a matrix's squared gradients only the means over rows
/// and over columns (the last two axes) are kept; β2 is 1 − step^beta2_decay; the step is min(rate, 1/√step) times
/// max(epsilon2, root mean square of p), and no update's root mean square exceeds `clip`. Decay is decoupled.
struct Adafactor {
  double beta2_decay = -0.8;
  double epsilon1 = 0;  // 0: the distance from 1 to the next number of the dtype it computes in
  double epsilon2 = 1e-3, clip = 1;
  bool operator==(const Adafactor&) const = default;
};

/// LAMB (You and others, 2020): AdamW's direction with λ·p added, as long as the param: times ‖p‖/‖direction‖, or 1
/// where either is 0.
struct Lamb {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6;
  bool operator==(const Lamb&) const = default;
};

using Optimizer = std::variant<Sgd, AdamW, Muon, Lion, Adafactor, Lamb>;
/// `sgd`, `adamw`, `muon`, `lion`, `adafactor`, `lamb`: also how the names of its state begin.
std::string_view optimizer_name(const Optimizer&);
/// One with its defaults. Throws UserError that lists the names.
Optimizer optimizer_from_string(std::string_view name);
/// Throws UserError where a setting is outside its range.
void check_optimizer(const Optimizer&);

// ---------------------------------------------------------------------------------------------- as nodes

/// What changes from step to step: scalar nodes, usually inputs of the step graph.
struct StepNodes {
  Node learning_rate, weight_decay;
  Node step;  // counts from 1
};
/// What an optimizer keeps of a param between steps: a Param of the graph, and its value after the step.
struct StateNode {
  Node param, next;
};

/// The param after one step. Adds the state to `states`: params named `<optimizer>.<part>.<name of the param>`, zero
/// before the first step, of the param's dtype (f32 where that is f16 or bf16). Throws UserError where param is no
/// float Param, the gradient has another shape, or the optimizer has a bad setting.
Node optimizer_update(const Optimizer&, Node param, Node gradient, const StepNodes&, std::vector<StateNode>& states);
/// The same of one optimizer; the state is `sgd.m`, none without momentum.
Node sgd_update(const Sgd&, Node param, Node gradient, const StepNodes&, std::vector<StateNode>& states);
/// State `adamw.m`, `adamw.v`.
Node adamw_update(const AdamW&, Node param, Node gradient, const StepNodes&, std::vector<StateNode>& states);
/// State `muon.m`. Throws UserError where the param is not 2-D, or with `flatten` has fewer axes.
Node muon_update(const Muon&, Node param, Node gradient, const StepNodes&, std::vector<StateNode>& states);
/// State `lion.m`.
Node lion_update(const Lion&, Node param, Node gradient, const StepNodes&, std::vector<StateNode>& states);
/// State `adafactor.row` [.., m, 1] and `adafactor.column` [.., 1, n], of less than two axes `adafactor.v`.
Node adafactor_update(const Adafactor&, Node param, Node gradient, const StepNodes&, std::vector<StateNode>& states);
/// State `lamb.m`, `lamb.v`.
Node lamb_update(const Lamb&, Node param, Node gradient, const StepNodes&, std::vector<StateNode>& states);

/// The Newton-Schulz steps on x / max(‖x‖, ε), over the last two axes: singular values end near 1.
Node orthogonalize(Node x, const Muon& = {});
/// √Σ x² over all elements of all, at least f32.
Node global_norm(const Nodes& gradients);
/// Gradients times min(1, max_norm / (norm + 1e-6)).
Nodes clip_by_global_norm(const Nodes& gradients, Node norm, double max_norm);

// ---------------------------------------------------------------------------------------------- groups

/// One step of training. What is left out is the optimizer's published default (docs/optimizers.md).
struct OptimizerStep {
  std::int64_t step = 1;  // counts from 1
  std::optional<double> learning_rate = {}, weight_decay = {};
};
/// The learning rate and weight decay that an optimizer was published with.
OptimizerStep default_step(const Optimizer&);

/// Params that take one optimizer.
struct ParamGroup {
  Optimizer optimizer = AdamW{};
  std::string pattern = "*";          // of the name: * stands for any characters, ? for one
  std::function<bool(std::string_view name, const Extents& shape)> matches = {};  // asked too, where there is one
  double learning_rate_factor = 1;    // times the step's
  bool weight_decay = true;           // false: these do not decay
};
/// A param is of the first group that matches it.
using ParamGroups = std::vector<ParamGroup>;

/// Throws UserError where none matches.
const ParamGroup& group_of(const ParamGroups&, std::string_view name, const Extents& shape);
/// Whether a name fits a pattern of * and ?.
bool fits_pattern(std::string_view name, std::string_view pattern);

/// What Muon does not take although it is a matrix: embeddings and heads, norms and biases by their names.
std::vector<std::string> muon_fallback_patterns();
/// Muon for 2-D params, and those of more axes where it flattens; `fallback` for params of fewer axes and those that a
/// pattern names. The fallback does not decay params of fewer than two axes.
ParamGroups muon_groups(const Muon&, const Optimizer& fallback = AdamW{}, double fallback_rate_factor = 1,
                        const std::vector<std::string>& fallback_patterns = muon_fallback_patterns());

}  // namespace rlx
