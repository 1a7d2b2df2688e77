// Counter-based random numbers: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2,
// 3", 2011). A number is a pure function of key and counter, so every backend and thread count gives the same ones.
#pragma once
#include <array>
#include <cstdint>

namespace rlx {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

/// Four random words.
constexpr PhiloxCounter philox(PhiloxCounter c, PhiloxKey k) {
  for (int round = 0; round < 10; ++round) {
    std::uint64_t p0 = std::uint64_t(0xD2511F53u) * c[0], p1 = std::uint64_t(0xCD9E8D57u) * c[2];
    c = {std::uint32_t(p1 >> 32) ^ c[1] ^ k[0], std::uint32_t(p1), std::uint32_t(p0 >> 32) ^ c[3] ^ k[1],
         std::uint32_t(p0)};
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c;
}

/// A seed as a key.
constexpr PhiloxKey philox_key(std::uint64_t seed) { return {std::uint32_t(seed), std::uint32_t(seed >> 32)}; }

/// A word as a float in [0, 1): its top 24 bits, so every value is exact.
constexpr float uniform_from_bits(std::uint32_t word) { return float(word >> 8) * 0x1p-24f; }

/// The words of one stream in order, for code on the host. Streams of one seed are independent.
class PhiloxStream {
 public:
  constexpr PhiloxStream(std::uint64_t seed, std::uint64_t stream)
      : key_(philox_key(seed)), counter_{0, 0, std::uint32_t(stream), std::uint32_t(stream >> 32)} {}

  constexpr std::uint32_t next() {
    if (used_ == 4) {
      block_ = philox(counter_, key_);
      if (++counter_[0] == 0) ++counter_[1];
      used_ = 0;
    }
    return block_[used_++];
  }
  constexpr float next_uniform() { return uniform_from_bits(next()); }
  /// A number in [0, n) without bias, n >= 1.
  constexpr std::uint64_t next_below(std::uint64_t n) {
    for (std::uint64_t limit = ~std::uint64_t(0) - ~std::uint64_t(0) % n;;) {
      std::uint64_t v = std::uint64_t(next()) << 32;
      v |= next();
      if (v < limit) return v % n;
    }
  }

 private:
  PhiloxKey key_;
  PhiloxCounter counter_, block_{};
  unsigned used_ = 4;
};

}  // namespace rlx
