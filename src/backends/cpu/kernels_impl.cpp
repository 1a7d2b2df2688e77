// Compiled once per instruction set. Nothing here may have a name that two sets share, so everything is internal but
// the table, and no library template is used. Sums are in the same order in every set.
#include <cstdint>

#include "backends/cpu/kernels.h"

#if defined(__SSE4_1__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // g++ 12 on its own _mm512_undefined
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

namespace rlx::cpu {
namespace {

using i64 = std::int64_t;
#if defined(__AVX512F__)
constexpr int kLanes = 16;      // of a register
constexpr int kRowsAtOnce = 4;  // matrix rows whose sums fit the registers
#elif defined(__AVX2__)
constexpr int kLanes = 8, kRowsAtOnce = 2;
#else
constexpr int kLanes = 4, kRowsAtOnce = 1;
#endif
typedef float Floats __attribute__((vector_size(4 * kLanes), aligned(4)));
typedef std::uint32_t Words __attribute__((vector_size(4 * kLanes), aligned(4)));
typedef std::uint16_t Halves __attribute__((vector_size(2 * kLanes), aligned(2)));

#define RLX_INLINE [[gnu::always_inline]] static inline

template <class V, class T>
RLX_INLINE V load_as(const T* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

// kLanes matrix or vector elements, and one of them.
RLX_INLINE Floats lanes(const float* p) { return load_as<Floats>(p); }
RLX_INLINE Floats lanes(const std::uint16_t* p) {
  return (Floats)(__builtin_convertvector(load_as<Halves>(p), Words) << 16);
}
RLX_INLINE float one(float v) { return v; }
RLX_INLINE float one(std::uint16_t v) {
  std::uint32_t bits = std::uint32_t(v) << 16;
  float f;
  __builtin_memcpy(&f, &bits, sizeof f);
  return f;
}
RLX_INLINE std::int32_t one(std::int8_t v) { return v; }
RLX_INLINE std::int32_t one(std::uint8_t v) { return v; }

template <class Y>
RLX_INLINE void store(Y* y, Y sum, bool accumulate) {
  *y = accumulate ? *y + sum : sum;
}

// ---- f32 and bf16 matrix times f32 vector

// Sums run in kStrands interleaved strands, whatever the width of a register, which are then added as a tree.
constexpr int kStrands = 32, kParts = kStrands / kLanes;

RLX_INLINE float sum_strands(const Floats* sum) {
  float part[kStrands];
  __builtin_memcpy(part, sum, sizeof part);
#pragma GCC unroll 8
  for (int step = kStrands / 2; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) part[i] += part[i + step];
  return part[0];
}

template <int kRows, class M>
RLX_INLINE void dot_rows(i64 k, const M* m, i64 stride, const float* x, float* y, i64 y_stride, bool accumulate) {
  Floats sum[kRows][kParts];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int part = 0; part < kParts; ++part) sum[r][part] = Floats{};
  i64 i = 0;
  for (; i + kStrands <= k; i += kStrands) {
#pragma GCC unroll 8
    for (int part = 0; part < kParts; ++part) {
      Floats v = lanes(x + i + part * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sum[r][part] += lanes(m + r * stride + i + part * kLanes) * v;
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    float total = sum_strands(sum[r]);
    for (i64 j = i; j < k; ++j) total += one(m[r * stride + j]) * x[j];
    store(y + r * y_stride, total, accumulate);
  }
}

template <class M>
void matvec_dot(i64 n, i64 k, const M* m, i64 stride, const float* x, float* y, i64 y_stride, bool accumulate) {
  i64 i = 0;
  for (; i + kRowsAtOnce <= n; i += kRowsAtOnce)
    dot_rows<kRowsAtOnce>(k, m + i * stride, stride, x, y + i * y_stride, y_stride, accumulate);
  for (; i < n; ++i) dot_rows<1>(k, m + i * stride, stride, x, y + i * y_stride, y_stride, accumulate);
}

/// Adds kRows rows of the matrix, each times its x, to the sums of `n` columns.
template <int kRows, class M>
RLX_INLINE void add_rows(i64 n, const M* m, i64 stride, const float* x, float* sums) {
  i64 j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    Floats v = load_as<Floats>(sums + j);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) v += lanes(m + r * stride + j) * x[r];
    __builtin_memcpy(sums + j, &v, sizeof v);
  }
  for (; j < n; ++j) {
    float v = sums[j];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) v += one(m[r * stride + j]) * x[r];
    sums[j] = v;
  }
}

constexpr i64 kColumns = 512;  // columns whose sums are kept at once

template <class M>
void matvec_columns(i64 n, i64 k, const M* m, i64 stride, const float* x, float* y, i64 y_stride, bool accumulate) {
  alignas(64) float sums[kColumns];
  for (i64 begin = 0; begin < n; begin += kColumns) {
    i64 width = n - begin < kColumns ? n - begin : kColumns, i = 0;
    for (i64 j = 0; j < width; ++j) sums[j] = 0;
    for (; i + 8 <= k; i += 8) add_rows<8>(width, m + i * stride + begin, stride, x + i, sums);
    for (; i < k; ++i) add_rows<1>(width, m + i * stride + begin, stride, x + i, sums);
    for (i64 j = 0; j < width; ++j) store(y + (begin + j) * y_stride, sums[j], accumulate);
  }
}

// ---- 8-bit matrix times i16 vector, exact: bytes are widened to 16 bits, then multiplied and added in pairs (pmaddwd,
// which cannot overflow for such values)

#if defined(__AVX512BW__)
using Pairs = __m512i;  // 32 values of 16 bits, or the 16 sums of their neighbours
RLX_INLINE Pairs widen(const std::int8_t* p) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)p)); }
RLX_INLINE Pairs widen(const std::uint8_t* p) { return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i*)p)); }
RLX_INLINE Pairs load_pairs(const void* p) { return _mm512_loadu_si512(p); }
RLX_INLINE void store_pairs(void* p, Pairs v) { _mm512_storeu_si512(p, v); }
RLX_INLINE Pairs add(Pairs a, Pairs b) { return _mm512_add_epi32(a, b); }
RLX_INLINE Pairs multiply_pairs(Pairs a, Pairs b) { return _mm512_madd_epi16(a, b); }
RLX_INLINE Pairs repeat(std::int32_t v) { return _mm512_set1_epi32(v); }
#elif defined(__AVX2__)
using Pairs = __m256i;
RLX_INLINE Pairs widen(const std::int8_t* p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)p)); }
RLX_INLINE Pairs widen(const std::uint8_t* p) { return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i*)p)); }
RLX_INLINE Pairs load_pairs(const void* p) { return _mm256_loadu_si256((const __m256i*)p); }
RLX_INLINE void store_pairs(void* p, Pairs v) { _mm256_storeu_si256((__m256i*)p, v); }
RLX_INLINE Pairs add(Pairs a, Pairs b) { return _mm256_add_epi32(a, b); }
RLX_INLINE Pairs multiply_pairs(Pairs a, Pairs b) { return _mm256_madd_epi16(a, b); }
RLX_INLINE Pairs repeat(std::int32_t v) { return _mm256_set1_epi32(v); }
#elif defined(__SSE4_1__)
using Pairs = __m128i;
RLX_INLINE Pairs widen(const std::int8_t* p) { return _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i*)p)); }
RLX_INLINE Pairs widen(const std::uint8_t* p) { return _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i*)p)); }
RLX_INLINE Pairs load_pairs(const void* p) { return _mm_loadu_si128((const __m128i*)p); }
RLX_INLINE void store_pairs(void* p, Pairs v) { _mm_storeu_si128((__m128i*)p, v); }
RLX_INLINE Pairs add(Pairs a, Pairs b) { return _mm_add_epi32(a, b); }
RLX_INLINE Pairs multiply_pairs(Pairs a, Pairs b) { return _mm_madd_epi16(a, b); }
RLX_INLINE Pairs repeat(std::int32_t v) { return _mm_set1_epi32(v); }
#else
struct Pairs {
  std::int16_t v[2];  // one pair; its sum is kept in the same bits
};
RLX_INLINE Pairs widen(const std::int8_t* p) { return {{p[0], p[1]}}; }
RLX_INLINE Pairs widen(const std::uint8_t* p) { return {{p[0], p[1]}}; }
RLX_INLINE Pairs load_pairs(const void* p) { return load_as<Pairs>((const Pairs*)p); }
RLX_INLINE void store_pairs(void* p, Pairs v) { __builtin_memcpy(p, &v, sizeof v); }
RLX_INLINE Pairs repeat(std::int32_t v) { return __builtin_bit_cast(Pairs, v); }
RLX_INLINE Pairs add(Pairs a, Pairs b) {
  return repeat(__builtin_bit_cast(std::int32_t, a) + __builtin_bit_cast(std::int32_t, b));
}
RLX_INLINE Pairs multiply_pairs(Pairs a, Pairs b) { return repeat(a.v[0] * b.v[0] + a.v[1] * b.v[1]); }
#endif
constexpr i64 kPairs = sizeof(Pairs) / 4;

RLX_INLINE std::int32_t sum_pairs(Pairs v) {
#if defined(__AVX512BW__)
  return _mm512_reduce_add_epi32(v);
#else
  std::int32_t part[kPairs], total = 0;
  __builtin_memcpy(part, &v, sizeof v);
  for (i64 i = 0; i < kPairs; ++i) total += part[i];
  return total;
#endif
}

/// a[i], b[i], a[i + 1], b[i + 1], … widened, i = kPairs * part.
template <class M>
RLX_INLINE Pairs weave(const M* a, const M* b, int part) {
#if defined(__SSE4_1__)
  __m128i x = _mm_loadu_si128((const __m128i*)a), y = _mm_loadu_si128((const __m128i*)b);
  __m128i low = _mm_unpacklo_epi8(x, y), high = _mm_unpackhi_epi8(x, y);
  constexpr bool kSigned = M(-1) < 0;
#if defined(__AVX512BW__)
  (void)part;
  __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
  return kSigned ? _mm512_cvtepi8_epi16(both) : _mm512_cvtepu8_epi16(both);
#elif defined(__AVX2__)
  __m128i half = part ? high : low;
  return kSigned ? _mm256_cvtepi8_epi16(half) : _mm256_cvtepu8_epi16(half);
#else
  __m128i half = part & 2 ? high : low;
  if (part & 1) half = _mm_unpackhi_epi64(half, half);
  return kSigned ? _mm_cvtepi8_epi16(half) : _mm_cvtepu8_epi16(half);
#endif
#else
  M pair[2] = {a[part], b[part]};
  return widen(pair);
#endif
}

template <int kRows, class M>
RLX_INLINE void dot_rows_8(i64 k, const M* m, i64 stride, const std::int16_t* x, std::int32_t* y, i64 y_stride,
                           bool accumulate) {
  Pairs sum[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) sum[r] = repeat(0);
  i64 i = 0;
  for (; i + 2 * kPairs <= k; i += 2 * kPairs) {
    Pairs v = load_pairs(x + i);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sum[r] = add(sum[r], multiply_pairs(widen(m + r * stride + i), v));
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    std::int32_t total = sum_pairs(sum[r]);
    for (i64 j = i; j < k; ++j) total += std::int32_t(m[r * stride + j]) * x[j];
    store(y + r * y_stride, total, accumulate);
  }
}

template <class M>
void matvec_dot_8(i64 n, i64 k, const M* m, i64 stride, const std::int16_t* x, std::int32_t* y, i64 y_stride,
                  bool accumulate) {
  i64 i = 0;
  for (; i + 4 <= n; i += 4) dot_rows_8<4>(k, m + i * stride, stride, x, y + i * y_stride, y_stride, accumulate);
  for (; i < n; ++i) dot_rows_8<1>(k, m + i * stride, stride, x, y + i * y_stride, y_stride, accumulate);
}

/// Adds 2 · kTimes rows of the matrix, each times its x, to the sums of `n` columns.
template <int kTimes, class M>
RLX_INLINE void add_rows_8(i64 n, const M* m, i64 stride, const std::int16_t* x, std::int32_t* sums) {
  i64 j = 0;
  for (; j + 16 <= n; j += 16) {
#pragma GCC unroll 16
    for (int part = 0; part < 16 / kPairs; ++part) {
      Pairs v = load_pairs(sums + j + part * kPairs);
#pragma GCC unroll 8
      for (int t = 0; t < kTimes; ++t) {
        std::int32_t pair;
        __builtin_memcpy(&pair, x + 2 * t, sizeof pair);
        const M* rows = m + 2 * t * stride + j;
        v = add(v, multiply_pairs(weave(rows, rows + stride, part), repeat(pair)));
      }
      store_pairs(sums + j + part * kPairs, v);
    }
  }
  for (; j < n; ++j)
    for (int r = 0; r < 2 * kTimes; ++r) sums[j] += std::int32_t(m[r * stride + j]) * x[r];
}

template <class M>
void matvec_columns_8(i64 n, i64 k, const M* m, i64 stride, const std::int16_t* x, std::int32_t* y, i64 y_stride,
                      bool accumulate) {
  alignas(64) std::int32_t sums[kColumns];
  for (i64 begin = 0; begin < n; begin += kColumns) {
    i64 width = n - begin < kColumns ? n - begin : kColumns, i = 0;
    for (i64 j = 0; j < width; ++j) sums[j] = 0;
    for (; i + 8 <= k; i += 8) add_rows_8<4>(width, m + i * stride + begin, stride, x + i, sums);
    for (; i + 2 <= k; i += 2) add_rows_8<1>(width, m + i * stride + begin, stride, x + i, sums);
    if (i < k)
      for (i64 j = 0; j < width; ++j) sums[j] += std::int32_t(m[i * stride + begin + j]) * x[i];
    for (i64 j = 0; j < width; ++j) store(y + (begin + j) * y_stride, sums[j], accumulate);
  }
}

// ---- copies in other types and orders

template <class T, class U>
RLX_INLINE void widen_matrix(i64 rows, i64 cols, const T* in, i64 row, i64 col, U* out, i64 out_row) {
  if (col == 1) {
    for (i64 r = 0; r < rows; ++r)
      for (i64 c = 0; c < cols; ++c) out[r * out_row + c] = U(one(in[r * row + c]));
    return;
  }
  constexpr i64 kBlock = 32;  // strips of rows, so that the lines read stay in the L1 cache until all of them is used
  for (i64 r0 = 0; r0 < rows; r0 += kBlock) {
    i64 r1 = r0 + kBlock < rows ? r0 + kBlock : rows;
    for (i64 c = 0; c < cols; ++c)
      for (i64 r = r0; r < r1; ++r) out[r * out_row + c] = U(one(in[r * row + c * col]));
  }
}

void widen_bf16(i64 rows, i64 cols, const std::uint16_t* in, i64 row, i64 col, float* out) {
  widen_matrix(rows, cols, in, row, col, out, cols);
}
void widen_s8(i64 rows, i64 cols, const std::int8_t* in, i64 row, i64 col, std::int16_t* out, i64 out_row) {
  widen_matrix(rows, cols, in, row, col, out, out_row);
}
void widen_u8(i64 rows, i64 cols, const std::uint8_t* in, i64 row, i64 col, std::int16_t* out, i64 out_row) {
  widen_matrix(rows, cols, in, row, col, out, out_row);
}

/// kRows × kCols sums of products of i16, which the compiler turns into pmaddwd.
template <int kRows, int kCols>
RLX_INLINE void dots_i16(i64 k, const std::int16_t* a, const std::int16_t* b, std::int32_t* c, i64 c_row,
                         bool accumulate) {
  for (int r = 0; r < kRows; ++r) {
    std::int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    const std::int16_t* x = a + r * k;
    for (i64 i = 0; i < k; ++i) {
      s0 += std::int32_t(x[i]) * b[i];
      if constexpr (kCols > 1) {
        s1 += std::int32_t(x[i]) * b[k + i];
        s2 += std::int32_t(x[i]) * b[2 * k + i];
        s3 += std::int32_t(x[i]) * b[3 * k + i];
      }
    }
    std::int32_t* y = c + r * c_row;
    store(y, s0, accumulate);
    if constexpr (kCols > 1) store(y + 1, s1, accumulate), store(y + 2, s2, accumulate), store(y + 3, s3, accumulate);
  }
}

void gemm_i16(i64 m, i64 n, i64 k, const std::int16_t* a, const std::int16_t* b, std::int32_t* c, i64 c_row,
              bool accumulate) {
  i64 j = 0;
  for (; j + 4 <= n; j += 4)
    for (i64 i = 0; i < m; ++i) dots_i16<1, 4>(k, a + i * k, b + j * k, c + i * c_row + j, c_row, accumulate);
  for (; j < n; ++j)
    for (i64 i = 0; i < m; ++i) dots_i16<1, 1>(k, a + i * k, b + j * k, c + i * c_row + j, c_row, accumulate);
}

typedef std::uint32_t Zip32 __attribute__((vector_size(16), aligned(1)));
typedef std::uint16_t Zip16 __attribute__((vector_size(16), aligned(1)));
typedef std::uint8_t Zip8 __attribute__((vector_size(16), aligned(1)));
RLX_INLINE Zip32 zip_low(Zip32 a, Zip32 b) { return __builtin_shuffle(a, b, Zip32{0, 4, 1, 5}); }
RLX_INLINE Zip32 zip_high(Zip32 a, Zip32 b) { return __builtin_shuffle(a, b, Zip32{2, 6, 3, 7}); }
RLX_INLINE Zip16 zip_low(Zip16 a, Zip16 b) { return __builtin_shuffle(a, b, Zip16{0, 8, 1, 9, 2, 10, 3, 11}); }
RLX_INLINE Zip16 zip_high(Zip16 a, Zip16 b) { return __builtin_shuffle(a, b, Zip16{4, 12, 5, 13, 6, 14, 7, 15}); }
RLX_INLINE Zip8 zip_low(Zip8 a, Zip8 b) {
  return __builtin_shuffle(a, b, Zip8{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23});
}
RLX_INLINE Zip8 zip_high(Zip8 a, Zip8 b) {
  return __builtin_shuffle(a, b, Zip8{8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31});
}

/// A square of 16 bytes a row: zipping row i with row i + n/2, log2 n times, transposes it.
template <class V, class T>
RLX_INLINE void transpose_square(const T* in, i64 in_row, T* out, i64 out_row) {
  constexpr int kSide = 16 / sizeof(T);
  V rows[kSide], next[kSide];
#pragma GCC unroll 16
  for (int i = 0; i < kSide; ++i) rows[i] = load_as<V>(in + i * in_row);
#pragma GCC unroll 4
  for (int step = 1; step < kSide; step *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < kSide / 2; ++i) {
      next[2 * i] = zip_low(rows[i], rows[i + kSide / 2]);
      next[2 * i + 1] = zip_high(rows[i], rows[i + kSide / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i) rows[i] = next[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < kSide; ++i) __builtin_memcpy(out + i * out_row, &rows[i], 16);
}

template <class V, class T>
void transpose(i64 rows, i64 cols, const T* in, i64 in_row, T* out, i64 out_row) {
  constexpr i64 kSide = 16 / sizeof(T), kBlock = 128 / sizeof(T);  // two cache lines
  for (i64 c0 = 0; c0 < cols; c0 += kBlock)
    for (i64 r0 = 0; r0 < rows; r0 += kBlock) {
      i64 c1 = c0 + kBlock < cols ? c0 + kBlock : cols, r1 = r0 + kBlock < rows ? r0 + kBlock : rows, r = r0;
      for (; r + kSide <= r1; r += kSide) {
        i64 c = c0;
        for (; c + kSide <= c1; c += kSide)
          transpose_square<V>(in + r * in_row + c, in_row, out + c * out_row + r, out_row);
        for (; c < c1; ++c)
          for (i64 i = r; i < r + kSide; ++i) out[c * out_row + i] = in[i * in_row + c];
      }
      for (; r < r1; ++r)
        for (i64 c = c0; c < c1; ++c) out[c * out_row + r] = in[r * in_row + c];
    }
}

}  // namespace

namespace RLX_ISA_NAMESPACE {
extern const Kernels table;
constinit const Kernels table = {
    .matvec_f32 = {matvec_dot<float>, matvec_columns<float>},
    .matvec_bf16 = {matvec_dot<std::uint16_t>, matvec_columns<std::uint16_t>},
    .matvec_s8 = {matvec_dot_8<std::int8_t>, matvec_columns_8<std::int8_t>},
    .matvec_u8 = {matvec_dot_8<std::uint8_t>, matvec_columns_8<std::uint8_t>},
    .widen_bf16 = widen_bf16,
    .widen_s8 = widen_s8,
    .widen_u8 = widen_u8,
    .gemm_i16 = gemm_i16,
    .transpose_32 = transpose<Zip32, std::uint32_t>,
    .transpose_16 = transpose<Zip16, std::uint16_t>,
    .transpose_8 = transpose<Zip8, std::uint8_t>,
};
}  // namespace RLX_ISA_NAMESPACE

}  // namespace rlx::cpu
