// The one order in which RLX adds numbers to a double, so that every backend, thread count and instruction set gives
// the same bits: chunks of 4096 elements, in each chunk lane i % 8 takes element i, the 8 lanes are added as
// ((0+1)+(2+3))+((4+5)+(6+7)), and the chunks' sums are added in their order.
#pragma once
#include <cstdint>

namespace rlx {

inline constexpr std::int64_t kSumChunk = 4096;
inline constexpr int kSumLanes = 8;

/// The lanes of a chunk added.
inline double sum_lanes(const double* lane) {
  return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/// The sum of x[0], x[stride], … x[(n-1)*stride]; of their magnitudes; of their squares. T: float, double, f16, bf16.
/// The squares are rounded to double before they are added (exact where T is float or narrower).
template <class T>
double sum_f64(const T* x, std::int64_t n, std::int64_t stride = 1);
template <class T>
double sum_abs_f64(const T* x, std::int64_t n, std::int64_t stride = 1);
template <class T>
double sum_squares_f64(const T* x, std::int64_t n, std::int64_t stride = 1);

}  // namespace rlx
