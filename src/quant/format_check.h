// The exhaustive check of every number format's encoder.
#pragma once
#include <string>
#include <vector>

#include "rlx/base.h"

namespace rlx {

struct FormatCheck {
  Format format = Format::F8E4M3;
  std::int64_t codes = 0;      // decoded and compared with the formula
  std::int64_t patterns = 0;   // all bf16 and f16 numbers
  std::int64_t midpoints = 0;  // between neighbouring codes, and the f32 numbers below and above them
  std::int64_t decode_differences = 0, saturating_differences = 0, other_differences = 0;
  std::string first;  // what the first difference was

  std::int64_t differences() const { return decode_differences + saturating_differences + other_differences; }
};
/// Each format's code of every bf16 and f16 number and of what lies in the middle of two codes, saturating and not,
/// beside the nearest of all its values in f64, ties to the even code, found by trying each.
std::vector<FormatCheck> check_formats();

}  // namespace rlx
