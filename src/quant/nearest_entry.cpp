// The inner loop of k-means in vectors of 8, compiled for two instruction sets.
#include "quant/nearest_entry.h"

#include <cstring>
#include <limits>

namespace rlx {
namespace {

using Floats = float __attribute__((vector_size(32)));
using Ints = std::int32_t __attribute__((vector_size(32)));
constexpr std::int64_t kParts = kNearestLanes / 8;

// kD is d where it is known, else 0; what it calls is none of ours, so the copy for AVX2 stays in its own function.
template <std::int64_t kD>
[[gnu::always_inline]] inline void nearest(const float* x, std::int64_t stride, std::int64_t d, const float* codebook,
                                           std::int64_t entries, float* distance, std::int32_t* index) {
  if constexpr (kD > 0) d = kD;
  Floats values[kD > 0 ? kD : 1][kParts], best[kParts];
  Ints nearest[kParts];
  for (std::int64_t t = 0; t < kD; ++t)
    for (std::int64_t p = 0; p < kParts; ++p) std::memcpy(&values[t][p], x + t * stride + p * 8, 32);
  for (std::int64_t p = 0; p < kParts; ++p)
    best[p] = Floats{} + std::numeric_limits<float>::infinity(), nearest[p] = Ints{};
  for (std::int64_t entry = 0; entry < entries; ++entry) {
    const float* c = codebook + entry * d;
    for (std::int64_t p = 0; p < kParts; ++p) {
      Floats sum{};
      for (std::int64_t t = 0; t < d; ++t) {
        Floats away;
        if constexpr (kD > 0)
          away = values[t][p];
        else
          std::memcpy(&away, x + t * stride + p * 8, 32);
        away -= c[t];
        sum += away * away;
      }
      Ints nearer = sum < best[p];
      best[p] = nearer ? sum : best[p];
      nearest[p] = nearer ? Ints{} + std::int32_t(entry) : nearest[p];
    }
  }
  for (std::int64_t p = 0; p < kParts; ++p) {
    std::memcpy(distance + p * 8, &best[p], 32);
    std::memcpy(index + p * 8, &nearest[p], 32);
  }
}

#define RLX_NEAREST                                                               \
  switch (d) {                                                                    \
    case 1: return nearest<1>(x, stride, d, codebook, entries, distance, index);  \
    case 2: return nearest<2>(x, stride, d, codebook, entries, distance, index);  \
    case 4: return nearest<4>(x, stride, d, codebook, entries, distance, index);  \
    default: return nearest<0>(x, stride, d, codebook, entries, distance, index); \
  }

void nearest_portable(const float* x, std::int64_t stride, std::int64_t d, const float* codebook, std::int64_t entries,
                      float* distance, std::int32_t* index) {
  RLX_NEAREST
}
#ifdef __x86_64__
[[gnu::target("avx2")]] void nearest_avx2(const float* x, std::int64_t stride, std::int64_t d, const float* codebook,
                                          std::int64_t entries, float* distance, std::int32_t* index) {
  RLX_NEAREST
}
#endif

}  // namespace

void nearest_entry(const float* x, std::int64_t stride, std::int64_t d, const float* codebook, std::int64_t entries,
                   float* distance, std::int32_t* index) {
#ifdef __x86_64__
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2) return nearest_avx2(x, stride, d, codebook, entries, distance, index);
#endif
  nearest_portable(x, stride, d, codebook, entries, distance, index);
}

}  // namespace rlx
