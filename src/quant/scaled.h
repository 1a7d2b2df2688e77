// Scaled tensors on the host: the codes and scales that the ops scaled_quant_scale and scaled_quantize give, to the
// bit.
#pragma once
#include "rlx/array.h"
#include "rlx/op_attrs.h"

namespace rlx {

struct ScaledTensor {
  Format format = Format::F8E4M3;
  ScaleLayout layout = ScaleLayout::PerTensor;
  Array codes;               // u8, one an element
  Array scale;               // f32 [1]; e8m0 or f8e4m3 codes [..., blocks]
  Array tensor_scale;        // f32 [1] of nvfp4, else empty
  std::int64_t flushed = 0;  // blocks that hold a value other than 0 and decode to zeros
  std::int64_t clipped = 0;  // values that would round past the largest code
};
/// Of f32 (f16 and bf16 are widened). Throws UserError on another dtype, on a format that is not a float and on nvfp4
/// of another format than f4e2m1.
ScaledTensor scaled_quantize(const Array& x, Format, ScaleLayout, MxRule = MxRule::Ceil);
/// f32 of the codes' shape.
Array scaled_dequantize(const ScaledTensor&);
/// amax / divisor, 1 where that is 0, clamped to normal numbers; NaN stays. The scale of a tensor whose codes reach to
/// `divisor`.
float tensor_scale(float amax, float divisor);
inline constexpr float kNvfp4Divisor = 2688;  // 6 · 448, the greatest code times the greatest block scale
/// The e8m0 code of a block; 255 where amax is not finite.
std::uint8_t mx_scale(float amax, Format, MxRule);
/// The f8e4m3 code of a block, never NaN.
std::uint8_t nvfp4_scale(float amax, float tensor_scale);
/// The largest |x|; NaN where one is.
float max_abs(std::span<const float> x);

}  // namespace rlx
