// The canonical sum: its order, spelled out, and its accuracy.
#include "base/sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "rlx/base.h"

namespace rlx {
namespace {

// The order as the header states it, one element at a time.
double spelled_out(const std::vector<double>& x) {
  double total = 0;
  for (std::size_t chunk = 0; chunk < x.size(); chunk += 4096) {
    double l[8] = {};
    for (std::size_t i = chunk; i < std::min(x.size(), chunk + 4096); ++i) l[i % 8] += x[i];
    total += ((l[0] + l[1]) + (l[2] + l[3])) + ((l[4] + l[5]) + (l[6] + l[7]));
  }
  return total;
}

TEST(Sum, HasTheStatedOrder) {
  std::vector<double> x(10007), magnitudes(x.size()), squares(x.size()), strided(3 * x.size());
  std::uint64_t state = 1;
  for (auto& v : x) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    v = std::ldexp(double(std::int64_t(state)), int(state >> 59) - 60);
  }
  for (std::size_t n : {0, 1, 7, 8, 9, 4095, 4096, 4097, 10007}) {
    std::vector<double> part(x.begin(), x.begin() + std::ptrdiff_t(n));
    for (std::size_t i = 0; i < n; ++i) {
      magnitudes[i] = std::fabs(x[i]);
      squares[i] = x[i] * x[i];
      strided[3 * i] = x[i];
    }
    auto count = std::int64_t(n);
    EXPECT_EQ(sum_f64(part.data(), count), spelled_out(part)) << n;
    EXPECT_EQ(sum_f64(strided.data(), count, 3), spelled_out(part)) << n;
    EXPECT_EQ(sum_abs_f64(part.data(), count), spelled_out({magnitudes.begin(), magnitudes.begin() + count})) << n;
    EXPECT_EQ(sum_squares_f64(part.data(), count), spelled_out({squares.begin(), squares.begin() + count})) << n;
  }
}

TEST(Sum, WidensFirst) {
  std::vector<f16> ones(4097, f16(1.f));  // f16 itself stops at 2048
  EXPECT_EQ(sum_f64(ones.data(), 4097), 4097);
  std::vector<float> x{16777216.f, 1.f, -1.f, 0.5f};
  EXPECT_EQ(sum_f64(x.data(), 4), 16777216.5);
  EXPECT_EQ(sum_abs_f64(x.data(), 4), 16777218.5);
  std::vector<bf16> b{bf16(1.5f), bf16(-2.f)};
  EXPECT_EQ(sum_abs_f64(b.data(), 2), 3.5);
}

}  // namespace
}  // namespace rlx
