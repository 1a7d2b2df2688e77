// GGUF's block types of 256 elements whose sub-blocks have integer scales times one f16 d, and for Q2_K, Q4_K and Q5_K
// integer least values times one f16 too: y = d s q - dmin m. Decoding only.
#include "quant/block_codecs.h"

namespace rlx::blocks {
namespace {

int byte_at(const std::byte* p, int i) { return int(p[i]); }

// 8 scales and 8 least values of 6 bits in 12 bytes: the first four of each stand in the low six bits of bytes 0-3 and
// 4-7; the low nibbles of the others in bytes 8-11, and their upper two bits above the first ones.
struct SixBitPairs {
  int scale[8], least[8];
  explicit SixBitPairs(const std::byte* s) {
    for (int j = 0; j < 4; ++j) {
      int a = byte_at(s, j), b = byte_at(s, j + 4), c = byte_at(s, j + 8);
      scale[j] = a & 63, least[j] = b & 63;
      scale[j + 4] = (c & 15) | (a >> 6) << 4, least[j + 4] = c >> 4 | (b >> 6) << 4;
    }
  }
};

// Q4_K, and Q5_K where `high` holds the fifth bits of 32 elements a byte column. Each 64 elements take 32 bytes: the
// low nibbles, then the high ones.
void decode_pairs(const std::byte* in, const std::byte* high, const std::byte* nibbles, float* out) {
  float d = load<f16>(in), dmin = load<f16>(in + 2);
  SixBitPairs pairs(in + 4);
  for (int j = 0; j < 8; ++j) {
    float scale = d * float(pairs.scale[j]), least = dmin * float(pairs.least[j]);
    for (int l = 0; l < 32; ++l) {
      int q = byte_at(nibbles, 32 * (j / 2) + l) >> (4 * (j % 2)) & 15;
      if (high) q |= (byte_at(high, l) >> j & 1) << 4;
      out[32 * j + l] = scale * float(q) - least;
    }
  }
}

}  // namespace

// u8 scale and least value (low and high nibble) of 16 elements each, u8 q[64] of two bits, f16 d, f16 dmin.
void Q2_K::decode(const std::byte* in, float* out) {
  float d = load<f16>(in + 80), dmin = load<f16>(in + 82);
  for (int i = 0; i < kElements; ++i) {
    int half = i / 128, n = i / 32 % 4, s = byte_at(in, i / 16);
    int q = byte_at(in + 16, 32 * half + i % 32) >> (2 * n) & 3;
    out[i] = d * float(s & 15) * float(q) - dmin * float(s >> 4);
  }
}

// u8 mask[32] of third bits, where a clear one takes 4 away; u8 q[64] of two bits; 16 scales of six bits, kept +32, in
// 12 bytes (low nibbles in 8, upper bits in 4); f16 d.
void Q3_K::decode(const std::byte* in, float* out) {
  const std::byte *low = in + 32, *scales = in + 96;
  float d = load<f16>(in + 108);
  float scale[16];
  for (int j = 0; j < 16; ++j) {
    int nibble = byte_at(scales, j % 8) >> (4 * (j / 8)) & 15, upper = byte_at(scales, 8 + j % 4) >> (2 * (j / 4)) & 3;
    scale[j] = d * float((nibble | upper << 4) - 32);
  }
  for (int i = 0; i < kElements; ++i) {
    int q = byte_at(low, 32 * (i / 128) + i % 32) >> (2 * (i / 32 % 4)) & 3;
    if (!(byte_at(in, i % 32) >> (i / 32) & 1)) q -= 4;
    out[i] = scale[i / 16] * float(q);
  }
}

// f16 d, f16 dmin, 12 bytes of scales and least values, u8 q[128].
void Q4_K::decode(const std::byte* in, float* out) { decode_pairs(in, nullptr, in + 16, out); }
// The same with u8 fifth bits[32] before q.
void Q5_K::decode(const std::byte* in, float* out) { decode_pairs(in, in + 16, in + 48, out); }

// u8 low nibbles[128], u8 upper two bits[64], i8 scale[16], f16 d.
void Q6_K::decode(const std::byte* in, float* out) {
  const std::byte *high = in + 128, *scales = in + 192;
  float d = load<f16>(in + 208);
  for (int i = 0; i < kElements; ++i) {
    int half = i / 128, part = i / 32 % 4, l = i % 32;
    int q = byte_at(in, 64 * half + 32 * (part % 2) + l) >> (4 * (part / 2)) & 15;
    q |= (byte_at(high, 32 * half + l) >> (2 * part) & 3) << 4;
    out[i] = d * float(std::int8_t(scales[i / 16])) * float(q - 32);
  }
}

}  // namespace rlx::blocks
