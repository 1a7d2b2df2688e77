// GGUF's block types of E2M1 codes: MXFP4 with a power of two for 32 elements, NVFP4 with an E4M3 scale for 16.
#include "quant/block_codecs.h"
#include "quant/scaled.h"

namespace rlx::blocks {
namespace {

// Twice an E2M1 value. The reference has integers here, so that its zero has no sign.
float doubled(std::span<const float, 256> e2m1, int code) { return code == 8 ? 0.f : 2 * e2m1[std::size_t(code)]; }

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
  auto e2m1 = decode_table(Format::F4E2M1);
  std::uint8_t q[kElements];
  for (int j = 0; j < kElements; ++j) {
    int best = 0;
    float least = std::fabs(in[j]);
    for (int k = 1; k < 8; ++k) {
      float error = std::fabs(half * doubled(e2m1, k) - std::fabs(in[j]));
      if (error < least) best = k, least = error;
    }
    q[j] = std::uint8_t(best && in[j] < 0 ? best | 8 : best);
  }
  out[0] = std::byte(scale);
  for (int j = 0; j < 16; ++j) out[1 + j] = std::byte(q[j] | q[j + 16] << 4);
}
void MXFP4::decode(const std::byte* in, float* out) {
  float half = half_scale(int(in[0]));
  auto e2m1 = decode_table(Format::F4E2M1);
  for (int j = 0; j < 16; ++j) {
    out[j] = half * doubled(e2m1, int(in[1 + j]) & 15);
    out[j + 16] = half * doubled(e2m1, int(in[1 + j]) >> 4);
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
    auto code = nvfp4_scale(largest, tensor_scale);
    float scale = decode_table(Format::F8E4M3)[code] * tensor_scale;
    auto nibble = [&](int j) { return scale == 0 ? 0 : int(rlx::encode(Format::F4E2M1, x[j] / scale)); };
    out[s] = std::byte(code);
    for (int j = 0; j < 8; ++j) nibbles[j] = std::byte(nibble(j) | nibble(j + 8) << 4);
  }
}
void NVFP4::decode(const std::byte* in, float* out) {
  auto e2m1 = decode_table(Format::F4E2M1);
  for (int s = 0; s < 4; ++s) {
    float half = decode_table(Format::F8E4M3)[std::size_t(in[s])] * 0.5f;
    for (int j = 0; j < 8; ++j) {
      int byte = int(in[4 + 8 * s + j]);
      out[16 * s + j] = half * doubled(e2m1, byte & 15);
      out[16 * s + j + 8] = half * doubled(e2m1, byte >> 4);
    }
  }
}

}  // namespace rlx::blocks
