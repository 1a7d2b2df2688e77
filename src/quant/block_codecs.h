// The layouts of GGUF's block types: each a struct that packs one block and unpacks it. block_format.cpp makes the
// table of them.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "rlx/base.h"

namespace rlx::blocks {

template <class T>
T load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
void store(std::byte* p, T v) {
  std::memcpy(p, &v, sizeof v);
}

/// NaN where one of them is not finite.
inline float largest_magnitude(const float* in, std::int64_t n) {
  float m = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(in[i])) return NAN;
    m = std::max(m, std::fabs(in[i]));
  }
  return m;
}
/// 1/d, and 0 where that is not finite: the scale's f16 is 0 there, whatever the codes are.
inline float reciprocal(float d) {
  float r = d == 0 ? 0 : 1 / d;
  return std::isfinite(r) ? r : 0;
}

// The sizes, and the two directions of a layout that can be written.
#define RLX_BLOCK(elements, bytes)                                    \
  static constexpr std::int64_t kElements = elements, kBytes = bytes; \
  static void decode(const std::byte* in, float* out);
#define RLX_BLOCK_IN_OUT(elements, bytes) \
  RLX_BLOCK(elements, bytes)              \
  static void encode(const float* in, std::byte* out);

// ---- one scale, or a scale and a least value, for 32 elements (block_codecs_simple.cpp)

struct Q4_0 {
  RLX_BLOCK_IN_OUT(32, 18)
};
struct Q4_1 {
  RLX_BLOCK_IN_OUT(32, 20)
};
struct Q5_0 {
  RLX_BLOCK_IN_OUT(32, 22)
};
struct Q5_1 {
  RLX_BLOCK_IN_OUT(32, 24)
};
struct Q8_0 {
  RLX_BLOCK_IN_OUT(32, 34)
};

// ---- scales of sub-blocks that are integers themselves (block_codecs_k.cpp)

struct Q2_K {
  RLX_BLOCK(256, 84)
};
struct Q3_K {
  RLX_BLOCK(256, 110)
};
struct Q4_K {
  RLX_BLOCK(256, 144)
};
struct Q5_K {
  RLX_BLOCK(256, 176)
};
struct Q6_K {
  RLX_BLOCK(256, 210)
};

// ---- ternary (block_codecs_ternary.cpp)

struct TQ1_0 {
  RLX_BLOCK_IN_OUT(256, 54)
  static void encode_ternary(const std::int8_t* codes, f16 scale, std::byte* out);
};
struct TQ2_0 {
  RLX_BLOCK_IN_OUT(256, 66)
  static void encode_ternary(const std::int8_t* codes, f16 scale, std::byte* out);
};

// ---- 4-bit floats (block_codecs_fp4.cpp)

struct MXFP4 {
  RLX_BLOCK_IN_OUT(32, 17)
};
struct NVFP4 {
  RLX_BLOCK(64, 36)
  static void encode_scaled(const float* in, float tensor_scale, std::byte* out);
};

#undef RLX_BLOCK
#undef RLX_BLOCK_IN_OUT

}  // namespace rlx::blocks
