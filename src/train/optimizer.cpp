// AdamW and Muon as nodes: each adds one param's update to the graph of a training step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "rlx/ops.h"
#include "rlx/train.h"

namespace rlx {
namespace {

// 16-bit params are updated in f32: squares and ε would vanish in their own dtype.
DType state_dtype(DType d) { return d == DType::F16 || d == DType::BF16 ? DType::F32 : d; }
Node widened(Node x) { return x.dtype() == state_dtype(x.dtype()) ? x : cast(x, state_dtype(x.dtype())); }

void check(const char* optimizer, Node param, Node gradient) {
  if (!param.is(param_op) || !is_float(param.dtype()))
    throw UserError(fmt::format("[{}] got {}, expected a float param", optimizer, param.text()));
  if (gradient.shape() != param.shape())
    throw UserError(fmt::format("[{}] the gradient of {} is {}, expected {}", optimizer, param.text(),
                                to_string(gradient.type()), to_string(param.type())));
}

Node new_state(const char* prefix, Node param) {
  return param.graph().param(prefix + param.name(), state_dtype(param.dtype()), param.shape());
}

Node decayed(Node param, const StepNodes& s) { return param * (1 - s.learning_rate * s.weight_decay); }
Node narrowed(Node x, Node param) { return x.dtype() == param.dtype() ? x : cast(x, param.dtype()); }

Node swapped(Node x) {
  Axes perm;
  for (int i = 0; i < x.rank(); ++i) perm.push_back(i);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return transpose(x, perm);
}

// X ← aX + (bA + cA²)X with A = XXᵀ takes singular values towards 1.
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;

Node newton_schulz(Node x, int steps) {
  for (int i = 0; i < steps; ++i) {
    Node gram = matmul(x, swapped(x));
    x = kA * x + matmul(kB * gram + kC * matmul(gram, gram), x);
  }
  return x;
}

// The same on the small side alone: each step is X ← QX with Q = aI + bA + cA², so A ← QAQ, and the product of all Q is
// applied to X once. Saves a third of the work where X is three times as wide as high.
Node newton_schulz_of_wide(Node x, int steps) {
  Dim n = x.dim(-2);
  Graph graph = x.graph();
  Node identity = cast(equal(iota(graph, {n, 1}, 0), iota(graph, {1, n}, 1)), x.dtype());
  Node gram = matmul(x, swapped(x)), product = none;
  for (int i = 0; i < steps; ++i) {
    Node q = kA * identity + kB * gram + kC * matmul(gram, gram);
    product = product ? matmul(q, product) : q;
    if (i + 1 < steps) gram = matmul(matmul(q, gram), q);
  }
  return matmul(product, x);
}

double muon_factor(const Muon& muon, const Shape& shape) {
  auto out = double(shape[std::size_t(muon.out_axis)].number()),
       in = double(shape[std::size_t(1 - muon.out_axis)].number());
  switch (muon.scale) {
    case MuonScale::Original: return std::sqrt(std::max(1.0, out / in));
    case MuonScale::MatchRmsAdamw: return 0.2 * std::sqrt(std::max(out, in));
    case MuonScale::None: return 1;
  }
  throw InternalError("unknown Muon scale");
}

}  // namespace

std::span<const std::string_view> enum_names(MuonScale) {
  static constexpr std::string_view kNames[] = {"original", "match_rms_adamw", "none"};
  return kNames;
}

Node adamw_update(const AdamW& adamw, Node param, Node gradient, const StepNodes& s, std::vector<StateNode>& states) {
  check("adamw", param, gradient);
  Node g = widened(gradient), p = widened(param);
  Node m = new_state("adamw.m.", param), v = new_state("adamw.v.", param);
  Node new_m = adamw.beta1 * m + (1 - adamw.beta1) * g, new_v = adamw.beta2 * v + (1 - adamw.beta2) * (g * g);
  // 1 - β^step, without cancellation near 0.
  auto correction = [&](double beta) { return beta == 0 ? Node(1) : -expm1(s.step * std::log(beta)); };
  Node update = (new_m / correction(adamw.beta1)) / (sqrt(new_v / correction(adamw.beta2)) + adamw.epsilon);
  states.push_back({m, new_m});
  states.push_back({v, new_v});
  return narrowed(decayed(p, s) - s.learning_rate * update, param);
}

Node orthogonalize(Node x, const Muon& muon) {
  if (x.rank() < 2 || !x.dim(-1).is_number() || !x.dim(-2).is_number())
    throw UserError(fmt::format("[muon] got {}, expected a matrix of known sizes", x.text()));
  DType dtype = x.dtype();
  bool tall = x.dim(-2).number() > x.dim(-1).number();
  int rank = x.rank();
  x = x / maximum(sqrt(sum(x * x, {rank - 2, rank - 1}, true)), muon.epsilon);
  if (muon.bf16) x = cast(x, DType::BF16);
  if (tall) x = swapped(x);
  // In bf16 the small matrices would lose what the wide one keeps.
  bool wide = x.dim(-1).number() >= 2 * x.dim(-2).number() && !muon.bf16 && muon.steps > 1;
  x = wide ? newton_schulz_of_wide(x, muon.steps) : newton_schulz(x, muon.steps);
  if (tall) x = swapped(x);
  return muon.bf16 ? cast(x, dtype) : x;
}

Node muon_update(const Muon& muon, Node param, Node gradient, const StepNodes& s, std::vector<StateNode>& states) {
  check("muon", param, gradient);
  if (param.rank() != 2) throw UserError(fmt::format("[muon] got {}, expected a 2-D param", param.text()));
  if (muon.out_axis != 0 && muon.out_axis != 1)
    throw UserError(fmt::format("[muon] got out axis {} for {}, expected 0 or 1", muon.out_axis, param.text()));
  Node g = widened(gradient), p = widened(param), m = new_state("muon.m.", param);
  Node new_m = muon.momentum * m + (1 - muon.momentum) * g;
  Node update = muon.nesterov ? (1 - muon.momentum) * g + muon.momentum * new_m : new_m;
  states.push_back({m, new_m});
  Node step = s.learning_rate * muon_factor(muon, param.shape());
  return narrowed(decayed(p, s) - step * orthogonalize(update, muon), param);
}

Node global_norm(const Nodes& gradients) {
  Node total;
  for (Node g : gradients) {
    Axes all;
    for (int i = 0; i < g.rank(); ++i) all.push_back(i);
    Node x = widened(g), part = sum(x * x, all);
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
