#include "optim/define.h"

namespace rlx {

void check_settings(const Lamb& lamb) {
  check_share("lamb", "beta1", lamb.beta1);
  check_share("lamb", "beta2", lamb.beta2);
  check_size("lamb", "epsilon", lamb.epsilon);
}

Node lamb_update(const Lamb& lamb, Node param, Node gradient, const StepNodes& s, std::vector<StateNode>& states) {
  check_settings(lamb);
  check_update("lamb", param, gradient);
  Node g = widened(gradient), p = widened(param);
  Node m = new_state("lamb.m", param), v = new_state("lamb.v", param);
  Node new_m = lamb.beta1 * m + (1 - lamb.beta1) * g, new_v = lamb.beta2 * v + (1 - lamb.beta2) * (g * g);
  states.push_back({m, new_m});
  states.push_back({v, new_v});
  Node adam = (new_m / bias_correction(lamb.beta1, s.step)) /
              (sqrt(new_v / bias_correction(lamb.beta2, s.step)) + lamb.epsilon);
  Node direction = adam + s.weight_decay * p;
  Node length = sqrt(sum_of_squares(p)), stride = sqrt(sum_of_squares(direction));
  Node both = logical_and(greater(length, 0), greater(stride, 0));
  Node trust = where(both, length / where(both, stride, 1), 1);
  return narrowed(p - (s.learning_rate * trust) * direction, param);
}

}  // namespace rlx
