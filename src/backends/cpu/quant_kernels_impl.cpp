// Compiled once per instruction set: plain loops that the compiler turns into vectors. As in kernels_impl.cpp,
// everything is internal but the table.
#include "backends/cpu/quant_kernels.h"

namespace rlx::cpu {
namespace {

using i64 = std::int64_t;
using u32 = std::uint32_t;

#define RLX_INLINE [[gnu::always_inline]] static inline

RLX_INLINE u32 bits_of(float v) { return __builtin_bit_cast(u32, v); }
RLX_INLINE float float_of(u32 v) { return __builtin_bit_cast(float, v); }

constexpr u32 kMagnitude = 0x7fffffff, kExponent = 0x7f800000, kNan = 0x7fc00000, kInfinity = 0x7f800000;

// Magnitudes order as their bits do, with NaN above all.
RLX_INLINE u32 max_bits(i64 n, const float* x) {
  u32 most = 0;
  for (i64 i = 0; i < n; ++i) {
    u32 b = bits_of(x[i]) & kMagnitude;
    most = b > most ? b : most;
  }
  return most;
}

float max_abs(i64 n, const float* x) { return float_of(max_bits(n, x)); }

void block_max_abs(i64 columns, i64 block, const float* x, float* out) {
  i64 c = 0;
  if (block == 32)
    for (; c + 32 <= columns; c += 32) *out++ = float_of(max_bits(32, x + c));
  else if (block == 16)
    for (; c + 16 <= columns; c += 16) *out++ = float_of(max_bits(16, x + c));
  for (; c < columns; c += block) *out++ = float_of(max_bits(block < columns - c ? block : columns - c, x + c));
}

// Adding 2^(e + 23 - M) rounds a number of exponent e to M bits after the point, to nearest even.
RLX_INLINE void encode_run(const FloatCode& f, i64 n, const float* x, float scale, std::uint8_t* out) {
  const int shift = 23 - f.mantissa_bits, sign_shift = 32 - f.bits;
  const u32 add_exponent = u32(shift) << 23, least = bits_of(f.min_normal),
            rebias = u32(127 - f.bias) << f.mantissa_bits;
  const u32 sign_mask = u32(1) << (f.bits - 1);
  const float max = f.max, min_normal = f.min_normal, per_unit = 1 / f.min_subnormal;
  const u32 nan_code = f.nan_code, keeps_zero_sign = f.is_fnuz ? 0 : ~u32(0), nan_sign = f.has_nan ? ~u32(0) : 0;
  for (i64 i = 0; i < n; ++i) {
    float q = x[i] / scale;
    u32 b = bits_of(q), sign = (b >> sign_shift) & sign_mask;
    float a = float_of(b & kMagnitude), limited = a > max ? max : a;
    u32 exponent = bits_of(limited) & kExponent;
    exponent = exponent > least ? exponent : least;
    float magic = float_of(exponent + add_exponent), r = (limited + magic) - magic;
    u32 normal = (bits_of(r) >> shift) - rebias, subnormal = u32(int((r < min_normal ? r : 0) * per_unit));
    u32 code = r >= min_normal ? normal : subnormal;
    code |= code == 0 ? sign & keeps_zero_sign : sign;
    out[i] = std::uint8_t(a != a ? nan_code | (sign & nan_sign) : code);
  }
}

void encode(const FloatCode& f, i64 columns, i64 block, const float* x, const float* scales, std::uint8_t* out) {
  i64 c = 0;
  if (block == 32)
    for (; c + 32 <= columns; c += 32) encode_run(f, 32, x + c, *scales++, out + c);
  else if (block == 16)
    for (; c + 16 <= columns; c += 16) encode_run(f, 16, x + c, *scales++, out + c);
  for (; c < columns; c += block) encode_run(f, block < columns - c ? block : columns - c, x + c, *scales++, out + c);
}

RLX_INLINE void put(float v, float* out) { *out = v; }
RLX_INLINE void put(float v, std::uint16_t* out) {
  u32 b = bits_of(v), rounded = (b + 0x7fff + ((b >> 16) & 1)) >> 16;
  *out = std::uint16_t((b & kMagnitude) > kInfinity ? (b >> 16) | 0x40 : rounded);
}

template <class T>
RLX_INLINE void decode_run(const FloatCode& f, i64 n, const std::uint8_t* codes, float scale, float factor, T* out) {
  const int shift = 23 - f.mantissa_bits, sign_shift = 32 - f.bits;
  const u32 sign_mask = u32(1) << (f.bits - 1), magnitude_mask = sign_mask - 1, rebias = u32(127 - f.bias) << 23;
  const u32 first_normal = u32(1) << f.mantissa_bits, max_code = f.max_code;
  const u32 above_max = f.is_ieee ? kInfinity : kNan, fnuz_nan = f.is_fnuz ? sign_mask : ~u32(0);
  const float unit = f.min_subnormal;
  // Without a mantissa code 0 alone is no normal number, and its value is 0.
  for (i64 i = 0; i < n; ++i) {
    u32 code = codes[i], magnitude = code & magnitude_mask, sign = (code & sign_mask) << sign_shift;
    u32 normal = (magnitude << shift) + rebias, subnormal = bits_of(float(int(magnitude)) * unit);
    u32 b = magnitude < first_normal ? subnormal : normal;
    b = magnitude > max_code ? (magnitude == max_code + 1 ? above_max : kNan) : b;
    b = (code & (sign_mask | magnitude_mask)) == fnuz_nan ? kNan : b;
    put((float_of(b | sign) * scale) * factor, out + i);
  }
}

template <class T>
void decode(const FloatCode& f, i64 columns, i64 block, const std::uint8_t* codes, const float* scales, float factor,
            T* out) {
  i64 c = 0;
  if (block == 32)
    for (; c + 32 <= columns; c += 32) decode_run(f, 32, codes + c, *scales++, factor, out + c);
  else if (block == 16)
    for (; c + 16 <= columns; c += 16) decode_run(f, 16, codes + c, *scales++, factor, out + c);
  for (; c < columns; c += block)
    decode_run(f, block < columns - c ? block : columns - c, codes + c, *scales++, factor, out + c);
}

}  // namespace

namespace RLX_ISA_NAMESPACE {
extern const QuantKernels quant_table;
constinit const QuantKernels quant_table = {
    .max_abs = max_abs,
    .block_max_abs = block_max_abs,
    .encode = encode,
    .decode_f32 = decode<float>,
    .decode_bf16 = decode<std::uint16_t>,
};
}  // namespace RLX_ISA_NAMESPACE

}  // namespace rlx::cpu
