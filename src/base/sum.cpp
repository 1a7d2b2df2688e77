// Compiled without contraction to fused multiply-add, which would round differently where the machine has it.
#include "base/sum.h"

#include <algorithm>
#include <cmath>

#include "rlx/base.h"

namespace rlx {
namespace {

template <class T>
double wide(T v) {
  if constexpr (std::is_same_v<T, double>) {
    return v;
  } else {
    return double(float(v));
  }
}

template <class T, class F>
double sum(const T* x, std::int64_t n, std::int64_t stride, F&& f) {
  double total = 0;
  for (std::int64_t start = 0; start < n; start += kSumChunk) {
    auto size = std::min(kSumChunk, n - start), whole = size / kSumLanes * kSumLanes;
    double lane[kSumLanes] = {};
    auto p = x + start * stride;
    if (stride == 1) {
      for (std::int64_t i = 0; i < whole; i += kSumLanes)
        for (int l = 0; l < kSumLanes; ++l) lane[l] += f(wide(p[i + l]));
    } else {
      for (std::int64_t i = 0; i < whole; i += kSumLanes)
        for (int l = 0; l < kSumLanes; ++l) lane[l] += f(wide(p[(i + l) * stride]));
    }
    for (std::int64_t i = whole; i < size; ++i) lane[i - whole] += f(wide(p[i * stride]));
    total += sum_lanes(lane);
  }
  return total;
}

}  // namespace

template <class T>
double sum_f64(const T* x, std::int64_t n, std::int64_t stride) {
  return sum(x, n, stride, [](double v) { return v; });
}
template <class T>
double sum_abs_f64(const T* x, std::int64_t n, std::int64_t stride) {
  return sum(x, n, stride, [](double v) { return std::fabs(v); });
}
template <class T>
double sum_squares_f64(const T* x, std::int64_t n, std::int64_t stride) {
  return sum(x, n, stride, [](double v) { return v * v; });
}

#define RLX_SUMS(T)                                                     \
  template double sum_f64<T>(const T*, std::int64_t, std::int64_t);     \
  template double sum_abs_f64<T>(const T*, std::int64_t, std::int64_t); \
  template double sum_squares_f64<T>(const T*, std::int64_t, std::int64_t);
RLX_SUMS(float)
RLX_SUMS(double)
RLX_SUMS(f16)
RLX_SUMS(bf16)
#undef RLX_SUMS

}  // namespace rlx
