// Replays a case that make_golden.py stored: value and gradients, of the op and of its body, in f64, f32 and bf16.
#pragma once
#include <functional>

#include "rlx/graph.h"

namespace rlx {

/// Checks the case `name` against what `build` makes of its inputs. `tolerance` is relative to the largest value.
void check_golden(const std::string& name, const std::function<Node(const Nodes&)>& build);

}  // namespace rlx
