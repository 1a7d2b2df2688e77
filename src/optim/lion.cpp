#include "optim/define.h"

namespace rlx {

void check_settings(const Lion& lion) {
  check_share("lion", "beta1", lion.beta1);
  check_share("lion", "beta2", lion.beta2);
}

Node lion_update(const Lion& lion, Node param, Node gradient, const StepNodes& s, std::vector<StateNode>& states) {
  check_settings(lion);
  check_update("lion", param, gradient);
  Node g = widened(gradient), p = widened(param), m = new_state("lion.m", param);
  Node direction = sign(lion.beta1 * m + (1 - lion.beta1) * g);
  states.push_back({m, lion.beta2 * m + (1 - lion.beta2) * g});
  return narrowed(decayed(p, s) - s.learning_rate * direction, param);
}

}  // namespace rlx
