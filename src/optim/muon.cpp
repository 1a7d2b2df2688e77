#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "optim/define.h"

namespace rlx {
namespace {

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

// The matrix that is orthogonalised: a param of more axes as [out, -1].
Node as_matrix(Node x) {
  return x.rank() == 2 ? x : reshape(x, {x.dim(0), count(Shape(x.shape().begin() + 1, x.shape().end()))});
}

}  // namespace

std::span<const std::string_view> enum_names(MuonScale) {
  static constexpr std::string_view kNames[] = {"original", "match_rms_adamw", "none"};
  return kNames;
}

void check_settings(const Muon& muon) {
  check_share("muon", "momentum", muon.momentum);
  check_size("muon", "epsilon", muon.epsilon);
  if (muon.steps < 1 || muon.steps > 100)
    throw UserError(fmt::format("[muon] got {} Newton-Schulz steps, expected 1 to 100", muon.steps));
  if (muon.out_axis != 0 && muon.out_axis != 1)
    throw UserError(fmt::format("[muon] got out axis {}, expected 0 or 1", muon.out_axis));
  if (muon.flatten && muon.out_axis != 0)
    throw UserError(
        fmt::format("[muon] got out axis {}, expected 0 of params that are flattened to [out, -1]", muon.out_axis));
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
  check_settings(muon);
  check_update("muon", param, gradient);
  if (param.rank() < 2 || (param.rank() > 2 && !muon.flatten))
    throw UserError(
        fmt::format("[muon] got {}, expected a 2-D param{}; muon_groups gives the others to another optimizer",
                    param.text(), param.rank() > 2 ? ", or flatten to take it as [out, -1]" : ""));
  Node g = widened(gradient), p = widened(param), m = new_state("muon.m", param);
  Node new_m = muon.momentum * m + (1 - muon.momentum) * g;
  Node update = as_matrix(muon.nesterov ? (1 - muon.momentum) * g + muon.momentum * new_m : new_m);
  states.push_back({m, new_m});
  Node step = s.learning_rate * muon_factor(muon, update.shape());
  Node orthogonal = orthogonalize(update, muon);
  if (param.rank() > 2) orthogonal = reshape(orthogonal, param.shape());
  return narrowed(decayed(p, s) - step * orthogonal, param);
}

}  // namespace rlx
