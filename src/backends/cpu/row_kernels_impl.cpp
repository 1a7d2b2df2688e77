// Compiled once per instruction set, RLX_ISA_NAMESPACE naming it. The elementwise loops come from the formulas of the
// op table. Everything is internal but the table, so that no function of one set can be taken for another's.
#include <cstdint>
#include <cstring>

#include "backends/cpu/row_kernels.h"
#include "backends/cpu/vector_math.h"

namespace rlx::cpu {
namespace {

// A choice, as the compiler makes no vector code of a bool converted to float.
[[gnu::always_inline]] inline float to_f32(bool b) { return b ? 1.0f : 0.0f; }
[[gnu::always_inline]] inline float to_f32(float x) { return x; }

// A loop over a formula. Where an op takes integers only, there is none.
enum class Types { Any, Number, Float, Int, Compare, Logic, Predicate, Select };

template <Types types, class F> constexpr RowKernels::Unary unary_loop(F) {
  if constexpr (types == Types::Int) {
    return nullptr;
  } else {
    return [](float* out, const float* x, i64 n) {
#pragma GCC ivdep
      for (i64 i = 0; i < n; ++i) out[i] = to_f32(F{}(x[i]));
    };
  }
}

template <Types types, class F, class Loops> constexpr void set_binary([[maybe_unused]] Loops& loops, F) {
  if constexpr (types != Types::Int) {
    loops.vv = [](float* out, const float* a, const float* b, i64 n) {
#pragma GCC ivdep
      for (i64 i = 0; i < n; ++i) out[i] = to_f32(F{}(a[i], b[i]));
    };
    loops.vs = [](float* out, const float* a, const float* b, i64 n) {
      float s = *b;
#pragma GCC ivdep
      for (i64 i = 0; i < n; ++i) out[i] = to_f32(F{}(a[i], s));
    };
    loops.sv = [](float* out, const float* a, const float* b, i64 n) {
      float s = *a;
#pragma GCC ivdep
      for (i64 i = 0; i < n; ++i) out[i] = to_f32(F{}(s, b[i]));
    };
  }
}

void select(float* out, const float* c, const float* a, i64 a_step, const float* b, i64 b_step, i64 n) {
  auto loop = [&](auto at_a, auto at_b) {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) {
      float x = at_a(i), y = at_b(i);
      out[i] = c[i] != 0 ? x : y;
    }
  };
  float a0 = *a, b0 = *b;
  auto va = [a](i64 i) { return a[i]; };
  auto vb = [b](i64 i) { return b[i]; };
  auto sa = [a0](i64) { return a0; };
  auto sb = [b0](i64) { return b0; };
  if (a_step && b_step) loop(va, vb);
  else if (a_step) loop(va, sb);
  else if (b_step) loop(sa, vb);
  else loop(sa, sb);
}

// Lane i % 32 takes element i, then the lanes are joined: the same order in every instruction set.
template <class Join> float reduce_lanes(const float* x, i64 n, float init, Join join) {
  constexpr int kLanes = 32;
  float lane[kLanes];
  for (int l = 0; l < kLanes; ++l) lane[l] = init;
  i64 i = 0;
  for (; i + kLanes <= n; i += kLanes)
#pragma GCC unroll 32
    for (int l = 0; l < kLanes; ++l) lane[l] = join(lane[l], x[i + l]);
  for (int l = 0; i + l < n; ++l) lane[l] = join(lane[l], x[i + l]);
  for (int step = kLanes / 2; step > 0; step /= 2)
    for (int l = 0; l < step; ++l) lane[l] = join(lane[l], lane[l + step]);
  return lane[0];
}
float reduce_sum(const float* x, i64 n) {
  return reduce_lanes(x, n, 0, [](float a, float b) { return a + b; });
}
float reduce_prod(const float* x, i64 n) {
  return reduce_lanes(x, n, 1, [](float a, float b) { return a * b; });
}
float reduce_max(const float* x, i64 n) {
  return reduce_lanes(x, n, -__builtin_inff(), [](float a, float b) { return (a > b) | (a != a) ? a : b; });
}
float reduce_min(const float* x, i64 n) {
  return reduce_lanes(x, n, __builtin_inff(), [](float a, float b) { return (a < b) | (a != a) ? a : b; });
}

void add_to(float* acc, const float* x, i64 n) {
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) acc[i] += x[i];
}
void fill(float* out, float value, i64 n) {
  for (i64 i = 0; i < n; ++i) out[i] = value;
}
void iota(float* out, i64 first, i64 n) {
  for (i64 i = 0; i < n; ++i) out[i] = float(first + i);
}

float from_bf16(std::uint16_t bits) {
  std::uint32_t u = std::uint32_t(bits) << 16;
  float f;
  __builtin_memcpy(&f, &u, sizeof f);
  return f;
}
std::uint16_t to_bf16(float v) {
  std::uint32_t u;
  __builtin_memcpy(&u, &v, sizeof u);
  std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16, quiet = (u >> 16) | 0x40;
  return std::uint16_t((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}
// Branch-free, so that the loops over them become vector code on every set.
float from_f16(std::uint16_t h) {
  std::uint32_t sign = std::uint32_t(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
  std::uint32_t normal = (magnitude << 13) + 0x38000000u, special = (magnitude << 13) | 0x7f800000u;
  float tiny = float(std::int32_t(magnitude)) * 0x1p-24f;
  std::uint32_t tiny_bits;
  __builtin_memcpy(&tiny_bits, &tiny, sizeof tiny);
  std::uint32_t bits = sign | (magnitude >= 0x7c00u ? special : magnitude < 0x400u ? tiny_bits : normal);
  float f;
  __builtin_memcpy(&f, &bits, sizeof f);
  return f;
}
std::uint16_t to_f16(float v) {
  std::uint32_t u;
  __builtin_memcpy(&u, &v, sizeof u);
  std::uint32_t sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  std::uint32_t normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1)) >> 13;
  float magnitude, magic = 0.5f;  // adding 1/2 leaves multiples of 2^-24 in the low bits, rounded to nearest even
  __builtin_memcpy(&magnitude, &a, sizeof a);
  float shifted = magnitude + magic;
  std::uint32_t shifted_bits;
  __builtin_memcpy(&shifted_bits, &shifted, sizeof shifted);
  std::uint32_t tiny = shifted_bits - 0x3f000000u;
  std::uint32_t nan = 0x7e00u | ((a >> 13) & 0x3ffu);
  std::uint32_t out = a > 0x7f800000u ? nan : a >= 0x477ff000u ? 0x7c00u : a < 0x38800000u ? tiny : normal;
  return std::uint16_t(sign | out);
}
std::int8_t to_i8(float v) {
  float c = v != v ? 0.0f : v < -128.0f ? -128.0f : v > 127.0f ? 127.0f : v;
  return std::int8_t(std::int32_t(c));
}

template <class T, class F> void load_with(float* out, const void* in, i64 stride, i64 n, F f) {
  auto x = static_cast<const T*>(in);
  if (stride == 1)
    for (i64 i = 0; i < n; ++i) out[i] = f(x[i]);
  else
    for (i64 i = 0; i < n; ++i) out[i] = f(x[i * stride]);
}
template <class T, class F> void store_with(void* out, i64 stride, const float* x, i64 n, F f) {
  auto y = static_cast<T*>(out);
  if (stride == 1)
    for (i64 i = 0; i < n; ++i) y[i] = f(x[i]);
  else
    for (i64 i = 0; i < n; ++i) y[i * stride] = f(x[i]);
}

RowKernels make_table() {
  RowKernels k;
  {
    using namespace rlx::vec;
#define UNARY(name, types, text, ...) k.unary[kUnary_##name] = unary_loop<Types::types>([](auto x) { return text; });
#define BINARY(name, types, commutes, text, ...) \
  set_binary<Types::types>(k.binary[kBinary_##name], [](auto a, auto b) { return text; });
#include "ops/ops.def"
  }
  k.select = select;
  k.reduce[int(Reduction::Sum)] = reduce_sum;
  k.reduce[int(Reduction::Max)] = reduce_max;
  k.reduce[int(Reduction::Min)] = reduce_min;
  k.reduce[int(Reduction::Prod)] = reduce_prod;
  k.add_to = add_to;
  k.fill = fill;
  k.iota = iota;
  k.copy_strided = [](float* out, const float* x, i64 stride, i64 n) { load_with<float>(out, x, stride, n, [](float v) { return v; }); };
  k.round_bf16 = [](float* out, const float* x, i64 n) {
    for (i64 i = 0; i < n; ++i) out[i] = from_bf16(to_bf16(x[i]));
  };
  k.round_f16 = [](float* out, const float* x, i64 n) {
    for (i64 i = 0; i < n; ++i) out[i] = from_f16(to_f16(x[i]));
  };
  k.load_bf16 = [](float* out, const void* x, i64 stride, i64 n) { load_with<std::uint16_t>(out, x, stride, n, from_bf16); };
  k.load_f16 = [](float* out, const void* x, i64 stride, i64 n) { load_with<std::uint16_t>(out, x, stride, n, from_f16); };
  k.load_i8 = [](float* out, const void* x, i64 stride, i64 n) { load_with<std::int8_t>(out, x, stride, n, [](std::int8_t v) { return float(v); }); };
  k.load_u8 = [](float* out, const void* x, i64 stride, i64 n) { load_with<std::uint8_t>(out, x, stride, n, [](std::uint8_t v) { return float(v); }); };
  k.load_i32 = [](float* out, const void* x, i64 stride, i64 n) { load_with<std::int32_t>(out, x, stride, n, [](std::int32_t v) { return float(v); }); };
  k.load_i64 = [](float* out, const void* x, i64 stride, i64 n) { load_with<std::int64_t>(out, x, stride, n, [](std::int64_t v) { return float(v); }); };
  k.store_f32 = [](void* out, i64 stride, const float* x, i64 n) { store_with<float>(out, stride, x, n, [](float v) { return v; }); };
  k.store_bf16 = [](void* out, i64 stride, const float* x, i64 n) { store_with<std::uint16_t>(out, stride, x, n, to_bf16); };
  k.store_f16 = [](void* out, i64 stride, const float* x, i64 n) { store_with<std::uint16_t>(out, stride, x, n, to_f16); };
  k.store_i8 = [](void* out, i64 stride, const float* x, i64 n) { store_with<std::int8_t>(out, stride, x, n, to_i8); };
  k.store_bool = [](void* out, i64 stride, const float* x, i64 n) { store_with<std::uint8_t>(out, stride, x, n, [](float v) { return std::uint8_t(v != 0); }); };
  return k;
}

}  // namespace

namespace RLX_ISA_NAMESPACE {
const RowKernels& row_kernel_table() {
  static const RowKernels table = make_table();
  return table;
}
}  // namespace RLX_ISA_NAMESPACE

}  // namespace rlx::cpu
