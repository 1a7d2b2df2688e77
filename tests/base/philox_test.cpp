// Random numbers against the known answers that the Random123 authors publish, and the properties the host code needs.
#include "base/philox.h"

#include <gtest/gtest.h>

#include <vector>

namespace rlx {
namespace {

TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformUsesTheTop24Bits) {
  EXPECT_EQ(uniform_from_bits(0), 0.0f);
  EXPECT_EQ(uniform_from_bits(0xff), 0.0f);
  EXPECT_EQ(uniform_from_bits(0x100), 0x1p-24f);
  EXPECT_EQ(uniform_from_bits(0xffffffff), 1.0f - 0x1p-24f);
}

TEST(Philox, StreamsAreReproducibleAndDiffer) {
  PhiloxStream a(7, 1), b(7, 1), c(7, 2), d(8, 1);
  int same_c = 0, same_d = 0;
  for (int i = 0; i < 100; ++i) {
    std::uint32_t v = a.next();
    EXPECT_EQ(v, b.next());
    same_c += v == c.next();
    same_d += v == d.next();
  }
  EXPECT_LE(same_c, 1);
  EXPECT_LE(same_d, 1);
}

TEST(Philox, NextBelowCoversItsRangeEvenly) {
  PhiloxStream random(3, 0);
  std::vector<int> hits(7);
  for (int i = 0; i < 7000; ++i) ++hits[random.next_below(7)];
  for (int h : hits) EXPECT_NEAR(h, 1000, 150);
  EXPECT_EQ(random.next_below(1), 0u);
}

}  // namespace
}  // namespace rlx
