// GGUF's block types of E2M1 codes: MXFP4 with a power of two for 32 elements, NVFP4 with an E4M3 scale for 16.
#include "quant/block_codecs.h"

namespace rlx::blocks {
namespace {

constexpr float kE2M1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
constexpr float kMaxE2M1 = 6, kMaxE4M3 = 448, kMinE4M3 = 0x1p-9f;

float e2m1_value(int code) { return code & 8 ? -kE2M1[code & 7] : kE2M1[code]; }
// The reference has integers for values, so that its zero has no sign.
float e2m1_unsigned_zero(int code) { return code == 8 ? 0.f : e2m1_value(code); }

float e4m3_value(int code) {
  int e = code >> 3 & 15, m = code & 7;
  if (e == 15 && m == 7) return NAN;
  float v = e == 0 ? std::ldexp(float(m), -9) : std::ldexp(float(8 + m), e - 10);
  return code & 128 ? -v : v;
}

// The nearest code, ties to even, of a value from 0 on that is no more than the format's largest. Codes count up with
// the values: those of one exponent are multiples of one step.
int nearest_code(float v, int mantissa_bits, int min_exponent) {
  int e = v == 0 ? min_exponent : std::max(std::ilogb(v), min_exponent);
  return (e - min_exponent) * (1 << mantissa_bits) + int(std::nearbyint(std::ldexp(v, mantissa_bits - e)));
}
int to_e4m3(float v) { return nearest_code(v, 3, -6); }
int to_e2m1(float v) { return nearest_code(std::min(std::fabs(v), kMaxE2M1), 1, 0) | (std::signbit(v) ? 8 : 0); }

// Half of an E8M0 scale, as 2^-128 is a subnormal f32; FF is NaN.
float half_scale(int byte) { return byte == 255 ? NAN : std::ldexp(1.f, byte - 128); }

}  // namespace

// u8 E8M0 scale, then nibbles of elements j and j + 16. The scale is that of OCP's rule; the code of least error, the
// one nearer to zero of two.
void MXFP4::encode(const float* in, std::byte* out) {
  float largest = largest_magnitude(in, kElements);
  if (largest != largest) {
    std::fill(out, out + kBytes, std::byte(0));
    out[0] = std::byte(255);
    return;
  }
  // The logarithm is rounded to f32, as the reference does: just below a large power of two it is that power's.
  int scale = largest > 0 ? std::max(0, int(std::floor(float(std::log2(double(largest))))) - 2 + 127) : 0;
  float half = half_scale(scale);
  std::uint8_t q[kElements];
  for (int j = 0; j < kElements; ++j) {
    int best = 0;
    float least = std::fabs(in[j]);
    for (int k = 1; k < 8; ++k) {
      float error = std::fabs(half * (2 * kE2M1[k]) - std::fabs(in[j]));
      if (error < least) best = k, least = error;
    }
    q[j] = std::uint8_t(best && in[j] < 0 ? best | 8 : best);
  }
  out[0] = std::byte(scale);
  for (int j = 0; j < 16; ++j) out[1 + j] = std::byte(q[j] | q[j + 16] << 4);
}
void MXFP4::decode(const std::byte* in, float* out) {
  float half = half_scale(int(in[0]));
  for (int j = 0; j < 16; ++j) {
    out[j] = half * (2 * e2m1_unsigned_zero(int(in[1 + j]) & 15));
    out[j + 16] = half * (2 * e2m1_unsigned_zero(int(in[1 + j]) >> 4));
  }
}

// u8 E4M3 scale[4], then for each 16 elements 8 bytes of nibbles j and j + 8. All of it in f32; a scale is NaN only for
// values that are not finite.
void NVFP4::encode_scaled(const float* in, float tensor_scale, std::byte* out) {
  for (int s = 0; s < 4; ++s) {
    auto x = in + 16 * s;
    auto nibbles = out + 4 + 8 * s;
    float largest = largest_magnitude(x, 16);
    if (largest != largest) {
      out[s] = std::byte(127);
      std::fill(nibbles, nibbles + 8, std::byte(0));
      continue;
    }
    int code = to_e4m3(std::clamp(largest / kMaxE2M1 / tensor_scale, kMinE4M3, kMaxE4M3));
    float scale = e4m3_value(code) * tensor_scale;
    auto nibble = [&](int j) { return scale == 0 ? 0 : to_e2m1(x[j] / scale); };
    out[s] = std::byte(code);
    for (int j = 0; j < 8; ++j) nibbles[j] = std::byte(nibble(j) | nibble(j + 8) << 4);
  }
}
void NVFP4::decode(const std::byte* in, float* out) {
  for (int s = 0; s < 4; ++s) {
    float half = e4m3_value(int(in[s])) * 0.5f;
    for (int j = 0; j < 8; ++j) {
      int byte = int(in[4 + 8 * s + j]);
      out[16 * s + j] = half * (2 * e2m1_unsigned_zero(byte & 15));
      out[16 * s + j + 8] = half * (2 * e2m1_unsigned_zero(byte >> 4));
    }
  }
}

}  // namespace rlx::blocks
