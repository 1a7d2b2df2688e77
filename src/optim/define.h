// What the optimizers' graph forms share.
#pragma once
#include "rlx/ops.h"
#include "rlx/optim.h"

namespace rlx {

/// 16-bit params are updated in f32: squares and ε would vanish in their own dtype.
inline DType state_dtype(DType d) { return d == DType::F16 || d == DType::BF16 ? DType::F32 : d; }
inline Node widened(Node x) { return x.dtype() == state_dtype(x.dtype()) ? x : cast(x, state_dtype(x.dtype())); }
inline Node narrowed(Node x, Node param) { return x.dtype() == param.dtype() ? x : cast(x, param.dtype()); }

/// Throws UserError where param and gradient are not what an update takes.
void check_update(std::string_view optimizer, Node param, Node gradient);
/// A Param `<prefix>.<name of the param>`, of the param's shape.
Node new_state(std::string_view prefix, Node param);
Node new_state(std::string_view prefix, Node param, Shape shape);

inline Node decayed(Node param, const StepNodes& s) { return param * (1 - s.learning_rate * s.weight_decay); }
/// 1 - beta^step, without cancellation near 0.
Node bias_correction(double beta, Node step);
/// What AdamW and LAMB share.
struct AdamSettings {
  std::string_view optimizer;
  double beta1, beta2, epsilon;
};
void check_settings(const AdamSettings&);
/// Adam's direction m̂ / (√v̂ + ε) after this step; adds the states `<optimizer>.m` and `<optimizer>.v`.
Node adam_direction(const AdamSettings&, Node param, Node g, Node step, std::vector<StateNode>& states);
/// The sum of squares of all elements, a scalar.
Node sum_of_squares(Node x);

/// Each optimizer's own checks, in its file. Throw UserError.
void check_settings(const Sgd&);
void check_settings(const AdamW&);
void check_settings(const Muon&);
void check_settings(const Lion&);
void check_settings(const Adafactor&);
void check_settings(const Lamb&);
/// Throws UserError where a setting is not in [0, 1).
void check_share(std::string_view optimizer, std::string_view setting, double value);
/// Throws UserError where a setting is not finite and at least 0.
void check_size(std::string_view optimizer, std::string_view setting, double value);

}  // namespace rlx
