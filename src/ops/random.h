// How random nodes get their bits: what every backend computes. The counter is the element's index and the node's
// stream, the key is the seed, so an element depends on nothing else.
#pragma once
#include "base/philox.h"

namespace rlx {

/// The four words at an index of a stream.
constexpr PhiloxCounter random_words(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return philox({std::uint32_t(index), std::uint32_t(index >> 32), std::uint32_t(stream), std::uint32_t(stream >> 32)},
                philox_key(seed));
}
/// Uniform: element i takes the top 24 bits of the first word at i; a Bernoulli one is true where they are below this.
constexpr std::uint32_t bernoulli_threshold(double p) {
  auto t = std::uint32_t(p * 0x1p24);
  return t + (double(t) < p * 0x1p24);
}
/// Normal: elements 2k and 2k + 1 take the first two words at k (Box and Muller): radius √(-2 ln u), u in (0, 1], of
/// the first, angle 2π·v, v in [0, 1), of the second; the even one takes the cosine, the odd one the sine.
constexpr double normal_u(std::uint32_t word) { return double((word >> 8) + 1) * 0x1p-24; }

}  // namespace rlx
