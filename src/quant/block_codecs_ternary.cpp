// GGUF's ternary block types: 256 codes -1, 0, 1, kept as 0, 1, 2, and an f16 scale in the last two bytes.
#include "quant/block_codecs.h"

namespace rlx::blocks {
namespace {

// Two bits an element: half h, byte 32h + m holds elements 128h + 32n + m at bits 2n.
void put(const std::uint8_t* digits, std::byte* out, TQ2_0) {
  for (int h = 0; h < 2; ++h)
    for (int m = 0; m < 32; ++m) {
      auto e = digits + 128 * h + m;
      out[32 * h + m] = std::byte(e[0] | e[32] << 2 | e[64] << 4 | e[96] << 6);
    }
}
void get(const std::byte* in, std::int8_t* codes, TQ2_0) {
  for (int h = 0; h < 2; ++h)
    for (int n = 0; n < 4; ++n)
      for (int m = 0; m < 32; ++m) codes[128 * h + 32 * n + m] = std::int8_t((int(in[32 * h + m]) >> (2 * n) & 3) - 1);
}

// Five base-3 digits a byte, the most significant first, as ceil(v * 256 / 243): 32 bytes of elements m + 32n, 16 bytes
// of 160 + m + 16n, 4 bytes of four digits 240 + m + 4n.
struct Part {
  int bytes, digits, first;
};
constexpr Part kParts[] = {{32, 5, 0}, {16, 5, 160}, {4, 4, 240}};
constexpr int kPowers[] = {1, 3, 9, 27, 81};

void put(const std::uint8_t* digits, std::byte* out, TQ1_0) {
  for (auto& part : kParts) {
    for (int m = 0; m < part.bytes; ++m) {
      int v = 0;
      for (int n = 0; n < part.digits; ++n) v += digits[part.first + m + part.bytes * n] * kPowers[4 - n];
      out[m] = std::byte((v * 256 + 242) / 243);
    }
    out += part.bytes;
  }
}
void get(const std::byte* in, std::int8_t* codes, TQ1_0) {
  for (auto& part : kParts) {
    for (int n = 0; n < part.digits; ++n)
      for (int m = 0; m < part.bytes; ++m) {
        auto t = std::uint8_t(int(in[m]) * kPowers[n]);
        codes[part.first + m + part.bytes * n] = std::int8_t((t * 3 >> 8) - 1);
      }
    in += part.bytes;
  }
}

template <class Layout>
void encode_values(const float* in, std::byte* out) {
  float d = largest_magnitude(in, Layout::kElements), inverse = reciprocal(d);
  std::uint8_t digits[Layout::kElements];
  for (int i = 0; i < Layout::kElements; ++i)
    digits[i] = d != d ? 1 : std::uint8_t(int(std::round(in[i] * inverse)) + 1);
  put(digits, out, Layout());
  store(out + Layout::kBytes - 2, f16(d));
}
template <class Layout>
void encode_codes(const std::int8_t* codes, f16 d, std::byte* out) {
  std::uint8_t digits[Layout::kElements];
  for (int i = 0; i < Layout::kElements; ++i) digits[i] = std::uint8_t(codes[i] + 1);
  put(digits, out, Layout());
  store(out + Layout::kBytes - 2, d);
}
template <class Layout>
void decode_values(const std::byte* in, float* out) {
  std::int8_t codes[Layout::kElements];
  get(in, codes, Layout());
  float d = load<f16>(in + Layout::kBytes - 2);
  for (int i = 0; i < Layout::kElements; ++i) out[i] = d * float(codes[i]);
}

}  // namespace

void TQ1_0::encode(const float* in, std::byte* out) { encode_values<TQ1_0>(in, out); }
void TQ1_0::encode_ternary(const std::int8_t* codes, f16 d, std::byte* out) { encode_codes<TQ1_0>(codes, d, out); }
void TQ1_0::decode(const std::byte* in, float* out) { decode_values<TQ1_0>(in, out); }
void TQ2_0::encode(const float* in, std::byte* out) { encode_values<TQ2_0>(in, out); }
void TQ2_0::encode_ternary(const std::int8_t* codes, f16 d, std::byte* out) { encode_codes<TQ2_0>(codes, d, out); }
void TQ2_0::decode(const std::byte* in, float* out) { decode_values<TQ2_0>(in, out); }

}  // namespace rlx::blocks
