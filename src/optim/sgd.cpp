#include <fmt/format.h>

#include "optim/define.h"

namespace rlx {

void check_settings(const Sgd& sgd) {
  check_share("sgd", "momentum", sgd.momentum);
  check_share("sgd", "dampening", sgd.dampening);
  if (sgd.nesterov && (sgd.momentum == 0 || sgd.dampening != 0))
    throw UserError(
        fmt::format("[sgd] got nesterov with momentum {} and dampening {}, expected momentum and no dampening",
                    sgd.momentum, sgd.dampening));
}

Node sgd_update(const Sgd& sgd, Node param, Node gradient, const StepNodes& s, std::vector<StateNode>& states) {
  check_settings(sgd);
  check_update("sgd", param, gradient);
  Node g = widened(gradient), p = widened(param);
  if (sgd.coupled_decay) g = g + s.weight_decay * p;
  Node direction = g;
  if (sgd.momentum > 0) {
    Node m = new_state("sgd.m", param);
    // The first gradient is not dampened.
    Node taken = sgd.dampening == 0 ? g : g * (1 - sgd.dampening * cast(greater(s.step, 1), g.dtype()));
    Node new_m = sgd.momentum * m + taken;
    states.push_back({m, new_m});
    direction = sgd.nesterov ? g + sgd.momentum * new_m : new_m;
  }
  Node from = sgd.coupled_decay ? p : decayed(p, s);
  return narrowed(from - s.learning_rate * direction, param);
}

}  // namespace rlx
