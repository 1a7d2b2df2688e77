// Kernels of number formats, compiled once per instruction set (quant_kernels_impl.cpp). Every set gives the same bits,
// those of `encode` and `decode` of rlx/base.h.
#pragma once
#include <cstdint>

#include "backends/cpu/isa.h"

namespace rlx {
enum class Format : std::uint8_t;
}

namespace rlx::cpu {

/// What the kernels need to know of a float format.
struct FloatCode {
  int bits = 8, mantissa_bits = 0, bias = 0;
  std::uint32_t max_code = 0, nan_code = 0;  // what NaN becomes
  bool is_fnuz = false, is_ieee = false, has_nan = false;
  float max = 0, min_normal = 0, min_subnormal = 0;
};
FloatCode float_code(Format);
/// Whether `encode` below is the format's: where there is no mantissa, ties go by the exponent's parity instead.
bool has_fast_encode(Format);
bool has_fast_decode(Format);

struct QuantKernels {
  /// The largest |x|; NaN where one is.
  float (*max_abs)(std::int64_t n, const float* x);
  /// out[b] = max |x| of each block of a row; the last one may be short.
  void (*block_max_abs)(std::int64_t columns, std::int64_t block, const float* x, float* out);
  /// The saturating codes of x / scale, with one scale a block.
  void (*encode)(const FloatCode& code, std::int64_t columns, std::int64_t block, const float* x, const float* scales,
                 std::uint8_t* out);
  /// (Value · scale) · factor, as f32 or rounded to bf16.
  void (*decode_f32)(const FloatCode& code, std::int64_t columns, std::int64_t block, const std::uint8_t* codes,
                     const float* scales, float factor, float* out);
  void (*decode_bf16)(const FloatCode& code, std::int64_t columns, std::int64_t block, const std::uint8_t* codes,
                      const float* scales, float factor, std::uint16_t* out);
};

/// The table for this CPU (see cpu_features).
const QuantKernels& quant_kernels();
/// That of a given set, which the CPU must have.
const QuantKernels& quant_kernels(Isa);

}  // namespace rlx::cpu
