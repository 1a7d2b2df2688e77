#include "optim/define.h"

namespace rlx {

static AdamSettings settings_of(const Lamb& o) { return {"lamb", o.beta1, o.beta2, o.epsilon}; }

void check_settings(const Lamb& lamb) { check_settings(settings_of(lamb)); }

Node lamb_update(const Lamb& lamb, Node param, Node gradient, const StepNodes& s, std::vector<StateNode>& states) {
  check_settings(lamb);
  check_update("lamb", param, gradient);
  Node p = widened(param);
  Node direction = adam_direction(settings_of(lamb), param, widened(gradient), s.step, states) + s.weight_decay * p;
  Node length = sqrt(sum_of_squares(p)), stride = sqrt(sum_of_squares(direction));
  Node both = logical_and(greater(length, 0), greater(stride, 0));
  Node trust = where(both, length / where(both, stride, 1), 1);
  return narrowed(p - (s.learning_rate * trust) * direction, param);
}

}  // namespace rlx
