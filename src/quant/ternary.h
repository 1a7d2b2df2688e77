// BitNet b1.58's ternary weights. The one definition that training, export and kernels share.
#pragma once
#include <cmath>
#include <cstdint>
#include <span>

#include "rlx/transform.h"

namespace rlx {

/// The default floor of the scale.
inline constexpr float kTernaryEpsilon = 1e-5f;

/// max(mean |w|, eps). The mean is the sum of base/sum.h divided by the count in f64 and rounded once to f32; of no
/// elements it is 0. A NaN gives NaN.
float ternary_scale(std::span<const float> w, float eps = kTernaryEpsilon);

/// clamp(round_half_even(w / scale), -1, 1); the division is in f32. A NaN gives 0.
inline std::int8_t ternary_code(float w, float scale) {
  float q = w / scale;
  // Half to even: a half goes to 0, more than a half to 1. What is clamped need not be rounded.
  return std::int8_t((q > 0.5f) - (q < -0.5f));
}
void ternary_codes(std::span<const float> w, float scale, std::int8_t* codes);

/// One scale for all elements.
Ternary ternarize_per_tensor(const Array& w, float eps = kTernaryEpsilon);
/// One scale for each index of the axes not in `reduced`: {-2} for a matmul's [..., K, N], all but the first for a
/// convolution's [O, I, ...]. The elements under one scale are added in row-major order.
Ternary ternarize_per_channel(const Array& w, const Axes& reduced, float eps = kTernaryEpsilon);
// Both take f32, and f16 or bf16, which are widened. They throw UserError on another dtype and on a value that is not
// finite.

}  // namespace rlx
