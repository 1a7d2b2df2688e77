// Pictures of the values that a number format or a block's element has: ticks on a line, as SVG.
#pragma once
#include <string>
#include <string_view>

#include "rlx/base.h"

namespace rlx {

/// All finite values on an axis that is logarithmic on both sides of zero (linear for integers).
std::string format_picture(Format);

/// A GGUF type as its table row says it, and the values of its element before scales: low … high in steps of 1, or
/// E2M1's.
struct BlockLevels {
  const char* type;
  const char *element, *value, *rule;
  int low, high;  // both 0 for E2M1
};
/// Null for a type without levels: one that is stored as a dtype or that RLX cannot read.
const BlockLevels* block_levels(std::string_view type);
std::string levels_picture(std::string_view type, const BlockLevels&);

}  // namespace rlx
