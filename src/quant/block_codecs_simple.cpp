// GGUF's block types of 32 elements with one f16 scale d, and for some the least value m: y = d q or y = d q + m.
// Elements j and j + 16 share a byte, the first in the low nibble; the fifth bits of Q5 stand in a u32 of their own.
#include "quant/block_codecs.h"

namespace rlx::blocks {
namespace {

constexpr int kHalf = 16;

// The value of largest magnitude with its sign, the first of equals; NaN where one of them is not finite.
float farthest_from_zero(const float* in) {
  float m = in[0];
  for (int i = 0; i < 2 * kHalf; ++i) {
    if (!std::isfinite(in[i])) return NAN;
    if (std::fabs(in[i]) > std::fabs(m)) m = in[i];
  }
  return m;
}

void put_low_nibbles(const std::uint8_t* q, std::byte* out) {
  for (int j = 0; j < kHalf; ++j) out[j] = std::byte((q[j] & 15) | q[j + kHalf] << 4);
}
void get_low_nibbles(const std::byte* in, std::uint8_t* q) {
  for (int j = 0; j < kHalf; ++j) q[j] = std::uint8_t(in[j]) & 15, q[j + kHalf] = std::uint8_t(in[j]) >> 4;
}
void put_fifth_bits(const std::uint8_t* q, std::byte* out) {
  std::uint32_t bits = 0;
  for (int j = 0; j < 2 * kHalf; ++j) bits |= std::uint32_t(q[j] >> 4) << j;
  store(out, bits);
}
void get_fifth_bits(const std::byte* in, std::uint8_t* q) {
  auto bits = load<std::uint32_t>(in);
  for (int j = 0; j < 2 * kHalf; ++j) q[j] |= std::uint8_t((bits >> j & 1) << 4);
}

// Codes of Bits bits, of which the middle one is 0 and 0 the value farthest from zero. Returns d.
template <int Bits>
float encode_signed(const float* in, std::uint8_t* q) {
  constexpr int kMiddle = 1 << (Bits - 1), kLast = (1 << Bits) - 1;
  float d = farthest_from_zero(in) / float(-kMiddle), inverse = reciprocal(d);
  for (int j = 0; j < 2 * kHalf; ++j)
    q[j] = d != d ? 0 : std::uint8_t(std::min(kLast, int(in[j] * inverse + (float(kMiddle) + 0.5f))));
  return d;
}
// Codes of Bits bits from the least value on. Returns d.
template <int Bits>
float encode_from_least(const float* in, std::uint8_t* q, float& least) {
  constexpr int kLast = (1 << Bits) - 1;
  float low = in[0], high = in[0];
  for (int j = 0; j < 2 * kHalf; ++j) low = std::min(low, in[j]), high = std::max(high, in[j]);
  float d = std::isfinite(largest_magnitude(in, 2 * kHalf)) ? (high - low) / kLast : NAN, inverse = reciprocal(d);
  least = low;
  for (int j = 0; j < 2 * kHalf; ++j)  // a range that f32 cannot hold gives d infinite
    q[j] = !std::isfinite(d) ? 0 : std::uint8_t(std::min(kLast, int((in[j] - low) * inverse + 0.5f)));
  return d;
}

}  // namespace

void Q4_0::encode(const float* in, std::byte* out) {
  std::uint8_t q[kElements];
  store(out, f16(encode_signed<4>(in, q)));
  put_low_nibbles(q, out + 2);
}
void Q4_0::decode(const std::byte* in, float* out) {
  std::uint8_t q[kElements];
  get_low_nibbles(in + 2, q);
  float d = load<f16>(in);
  for (int j = 0; j < kElements; ++j) out[j] = d * float(q[j] - 8);
}

void Q4_1::encode(const float* in, std::byte* out) {
  std::uint8_t q[kElements];
  float least;
  store(out, f16(encode_from_least<4>(in, q, least)));
  store(out + 2, f16(least));
  put_low_nibbles(q, out + 4);
}
void Q4_1::decode(const std::byte* in, float* out) {
  std::uint8_t q[kElements];
  get_low_nibbles(in + 4, q);
  float d = load<f16>(in), m = load<f16>(in + 2);
  for (int j = 0; j < kElements; ++j) out[j] = d * float(q[j]) + m;
}

void Q5_0::encode(const float* in, std::byte* out) {
  std::uint8_t q[kElements];
  store(out, f16(encode_signed<5>(in, q)));
  put_fifth_bits(q, out + 2);
  put_low_nibbles(q, out + 6);
}
void Q5_0::decode(const std::byte* in, float* out) {
  std::uint8_t q[kElements];
  get_low_nibbles(in + 6, q);
  get_fifth_bits(in + 2, q);
  float d = load<f16>(in);
  for (int j = 0; j < kElements; ++j) out[j] = d * float(q[j] - 16);
}

void Q5_1::encode(const float* in, std::byte* out) {
  std::uint8_t q[kElements];
  float least;
  store(out, f16(encode_from_least<5>(in, q, least)));
  store(out + 2, f16(least));
  put_fifth_bits(q, out + 4);
  put_low_nibbles(q, out + 8);
}
void Q5_1::decode(const std::byte* in, float* out) {
  std::uint8_t q[kElements];
  get_low_nibbles(in + 8, q);
  get_fifth_bits(in + 4, q);
  float d = load<f16>(in), m = load<f16>(in + 2);
  for (int j = 0; j < kElements; ++j) out[j] = d * float(q[j]) + m;
}

// f16 d, i8 q[32].
void Q8_0::encode(const float* in, std::byte* out) {
  float d = largest_magnitude(in, kElements) / 127, inverse = reciprocal(d);
  store(out, f16(d));
  for (int i = 0; i < kElements; ++i)
    store(out + 2 + i, d != d ? std::int8_t(0) : std::int8_t(std::round(in[i] * inverse)));  // half away from zero
}
void Q8_0::decode(const std::byte* in, float* out) {
  float d = load<f16>(in);
  for (int i = 0; i < kElements; ++i) out[i] = float(std::int8_t(in[2 + i])) * d;
}

}  // namespace rlx::blocks
