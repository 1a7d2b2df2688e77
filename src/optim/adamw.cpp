#include "optim/define.h"

namespace rlx {

static AdamSettings settings_of(const AdamW& o) { return {"adamw", o.beta1, o.beta2, o.epsilon}; }

void check_settings(const AdamW& adamw) { check_settings(settings_of(adamw)); }

Node adamw_update(const AdamW& adamw, Node param, Node gradient, const StepNodes& s, std::vector<StateNode>& states) {
  check_settings(adamw);
  check_update("adamw", param, gradient);
  Node update = adam_direction(settings_of(adamw), param, widened(gradient), s.step, states);
  return narrowed(decayed(widened(param), s) - s.learning_rate * update, param);
}

}  // namespace rlx
