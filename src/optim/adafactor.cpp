#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "optim/define.h"

namespace rlx {

void check_settings(const Adafactor& a) {
  if (!(a.beta2_decay <= 0) || !std::isfinite(a.beta2_decay))
    throw UserError(fmt::format("[adafactor] got beta2_decay {}, expected one of at most 0", a.beta2_decay));
  check_size("adafactor", "epsilon1", a.epsilon1);
  check_size("adafactor", "epsilon2", a.epsilon2);
  if (!(a.clip >= 1)) throw UserError(fmt::format("[adafactor] got clip {}, expected at least 1", a.clip));
}

Node adafactor_update(const Adafactor& a, Node param, Node gradient, const StepNodes& s,
                      std::vector<StateNode>& states) {
  check_settings(a);
  check_update("adafactor", param, gradient);
  Node g = widened(gradient), p = widened(param);
  double epsilon = a.epsilon1 > 0            ? a.epsilon1
                   : g.dtype() == DType::F64 ? std::numeric_limits<double>::epsilon()
                                             : double(std::numeric_limits<float>::epsilon());
  Node share = pow(s.step, a.beta2_decay);  // 1 - β2 of this step
  auto carried = [&](std::string_view prefix, Node now) {
    Node state = new_state(prefix, param, now.shape());
    Node next = state + share * (now - state);
    states.push_back({state, next});
    return next;
  };
  Node square = g * g, variance;
  if (param.rank() >= 2) {
    Node row = carried("adafactor.row", mean(square, {-1}, true)),
         column = carried("adafactor.column", mean(square, {-2}, true));
    variance = row * column / maximum(mean(row, {-2}, true), epsilon);
  } else {
    variance = carried("adafactor.v", square);
  }
  Node update = rsqrt(maximum(variance, epsilon * epsilon)) * g;
  double root = std::sqrt(double(std::max<std::int64_t>(1, count(to_extents(param.shape())))));
  Node relative = minimum(s.learning_rate, 1 / sqrt(s.step)) * maximum(sqrt(sum_of_squares(p)) / root, a.epsilon2);
  Node limit = maximum(sqrt(sum_of_squares(update)) / (root * a.clip), 1);
  return narrowed(decayed(p, s) - (relative / limit) * update, param);
}

}  // namespace rlx
