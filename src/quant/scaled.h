// Scaled tensors on the host: the codes and scales that the ops scaled_quant_scale and scaled_quantize give, to the bit.
#pragma once
#include "rlx/array.h"
#include "rlx/op_attrs.h"

namespace rlx {

struct ScaledTensor {
  Format format = Format::F8E4M3;
  ScaleLayout layout = ScaleLayout::PerTensor;
  Array codes;         // u8, one an element
  Array scale;         // f32 [1]; e8m0 or f8e4m3 codes [..., blocks]
  Array tensor_scale;  // f32 [1] of nvfp4, else empty
  std::int64_t flushed = 0;  // blocks that hold a value other than 0 and decode to zeros
  std::int64_t clipped = 0;  // values beyond the largest that their scale can hold
};
/// Of f32 (f16 and bf16 are widened). Throws UserError on another dtype, on a format that is not a float and on nvfp4 of
/// another format than f4e2m1.
ScaledTensor scaled_quantize(const Array& x, Format, ScaleLayout, MxRule = MxRule::Ceil);
/// f32 of the codes' shape.
Array scaled_dequantize(const ScaledTensor&);
/// Elements under one scale along the last axis: 32 or 16; 0 where one scale is for all.
int block_size(ScaleLayout);

}  // namespace rlx
