#include "train/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rlx {

ScheduleFactors schedule_at(const std::string& schedule, std::int64_t step, std::int64_t total, std::int64_t warmup) {
  ScheduleFactors out;
  double t = double(std::max<std::int64_t>(0, step - warmup)) / double(std::max<std::int64_t>(1, total - warmup));
  t = std::min(t, 1.0);
  if (schedule == "linear") {
    out.learning_rate = 1 - t;
  } else if (schedule == "cosine") {
    out.learning_rate = 0.5 * (1 + std::cos(std::numbers::pi * t));
  } else if (schedule == "bitnet") {
    bool second = 2 * step >= total;
    out.learning_rate = (second ? 2.0 / 3 : 1.0) * (1 - t);
    out.weight_decay = second ? 0 : 1;
  } else if (schedule != "constant") {
    throw UserError(fmt::format("[schedule] got \"{}\", expected constant, linear, cosine or bitnet", schedule));
  }
  if (step < warmup) out.learning_rate = double(step + 1) / double(warmup + 1);
  return out;
}

}  // namespace rlx
