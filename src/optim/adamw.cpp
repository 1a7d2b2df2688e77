#include "optim/define.h"

namespace rlx {

void check_settings(const AdamW& adamw) {
  check_share("adamw", "beta1", adamw.beta1);
  check_share("adamw", "beta2", adamw.beta2);
  check_size("adamw", "epsilon", adamw.epsilon);
}

Node adamw_update(const AdamW& adamw, Node param, Node gradient, const StepNodes& s, std::vector<StateNode>& states) {
  check_settings(adamw);
  check_update("adamw", param, gradient);
  Node g = widened(gradient), p = widened(param);
  Node m = new_state("adamw.m", param), v = new_state("adamw.v", param);
  Node new_m = adamw.beta1 * m + (1 - adamw.beta1) * g, new_v = adamw.beta2 * v + (1 - adamw.beta2) * (g * g);
  Node update = (new_m / bias_correction(adamw.beta1, s.step)) /
                (sqrt(new_v / bias_correction(adamw.beta2, s.step)) + adamw.epsilon);
  states.push_back({m, new_m});
  states.push_back({v, new_v});
  return narrowed(decayed(p, s) - s.learning_rate * update, param);
}

}  // namespace rlx
