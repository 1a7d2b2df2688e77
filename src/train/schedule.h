// How learning rate and weight decay change over the steps of a run.
#pragma once
#include <string>

#include "rlx/base.h"

namespace rlx {

/// What the config's learning rates and weight decay are multiplied by.
struct ScheduleFactors {
  double learning_rate = 1, weight_decay = 1;
};

/// At `step`, counted from 0, of `total`. Over the first `warmup` steps the rate rises linearly, then
///   constant  stays
///   linear    falls linearly, to 0 after the last step
///   cosine    falls as half a cosine, to 0 after the last step
///   bitnet    falls linearly; in the second half of the run it is 2/3 of that, and weight decay is 0 (BitNet b1.58's
///   recipe)
/// Throws UserError on another name.
ScheduleFactors schedule_at(const std::string& schedule, std::int64_t step, std::int64_t total, std::int64_t warmup);

}  // namespace rlx
