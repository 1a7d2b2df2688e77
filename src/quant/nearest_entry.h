// The inner loop of k-means.
#pragma once
#include <cstdint>

namespace rlx {

/// Vectors that are handled together.
inline constexpr std::int64_t kNearestLanes = 16;

/// For kNearestLanes vectors, of which number t of vector i is x[t · stride + i]: the first of the entries [entries, d]
/// at the least squared distance, and that distance. The same bits in every instruction set.
void nearest_entry(const float* x, std::int64_t stride, std::int64_t d, const float* codebook, std::int64_t entries,
                   float* distance, std::int32_t* index);

}  // namespace rlx
