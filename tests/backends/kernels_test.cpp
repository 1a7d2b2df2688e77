// Our own kernels: every instruction set gives the portable set's bits; detection and its limit.
#include "backends/cpu/kernels.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "backends/cpu/isa.h"
#include "rlx/base.h"

namespace rlx::cpu {
namespace {

using i64 = std::int64_t;

std::vector<Isa> sets() {
  std::vector<Isa> all{Isa::Portable};
  auto found = detail::detect_cpu();
  if (found.avx2) all.push_back(Isa::Avx2);
  if (found.avx512) all.push_back(Isa::Avx512);
  return all;
}

template <class T>
std::vector<T> values(i64 n) {
  std::mt19937 gen(7);
  std::vector<T> v(static_cast<std::size_t>(n));
  for (auto& x : v) {
    if constexpr (std::is_floating_point_v<T>)
      x = std::uniform_real_distribution<T>(-1, 1)(gen);
    else if constexpr (sizeof(T) == 2)
      x = T(bf16(std::uniform_real_distribution<float>(-1, 1)(gen)).bits);
    else
      x = T(gen());
  }
  return v;
}

template <class M, class X, class Y>
void same_bits(MatrixVector<M, X, Y> Kernels::*member) {
  for (i64 n : {1, 5, 16, 100, 700})
    for (i64 k : {1, 15, 40, 333}) {
      auto m = values<M>(n * k);
      auto x = values<X>(k);
      for (bool dot : {true, false}) {
        std::vector<Y> first;
        for (Isa isa : sets()) {
          std::vector<Y> y(static_cast<std::size_t>(n), Y(1));
          auto& kernel = kernels(isa).*member;
          (dot ? kernel.dot : kernel.columns)(n, k, m.data(), dot ? k : n, x.data(), y.data(), 1, true);
          if (first.empty()) first = y;
          ASSERT_EQ(0, std::memcmp(first.data(), y.data(), y.size() * sizeof(Y)))
              << to_string(isa) << " " << n << "x" << k;
        }
      }
    }
}

TEST(Kernels, EverySetGivesTheSameBits) {
  same_bits(&Kernels::matvec_f32);
  same_bits(&Kernels::matvec_bf16);
  same_bits(&Kernels::matvec_s8);
  same_bits(&Kernels::matvec_u8);
}

template <class T> void check_transpose(Kernels::Transpose<T> Kernels::* member) {
  for (Isa isa : sets())
    for (auto [rows, cols] : {std::pair<i64, i64>{1, 1}, {3, 70}, {64, 64}, {37, 45}, {200, 150}}) {
      auto in = values<T>(rows * (cols + 3));
      std::vector<T> out(static_cast<std::size_t>(cols * (rows + 2)), T(9));
      (kernels(isa).*member)(rows, cols, in.data(), cols + 3, out.data(), rows + 2);
      for (i64 c = 0; c < cols; ++c)
        for (i64 r = 0; r < rows + 2; ++r)
          ASSERT_EQ(out[std::size_t(c * (rows + 2) + r)], r < rows ? in[std::size_t(r * (cols + 3) + c)] : T(9));
    }
}

TEST(Kernels, Transpose) {
  check_transpose(&Kernels::transpose_32);
  check_transpose(&Kernels::transpose_16);
  check_transpose(&Kernels::transpose_8);
}

TEST(CpuFeatures, TheLimitOnlyTakesAway) {
  CpuFeatures all{Isa::Avx512, true, true, true, true, true, true};
  EXPECT_EQ(detail::limit_cpu(all, "").isa, Isa::Avx512);
  EXPECT_EQ(detail::limit_cpu(all, "avx512").vnni, true);
  auto avx2 = detail::limit_cpu(all, "avx2");
  EXPECT_EQ(avx2.isa, Isa::Avx2);
  EXPECT_FALSE(avx2.avx512 || avx2.vnni || avx2.bf16 || avx2.amx_int8 || avx2.amx_bf16);
  EXPECT_EQ(detail::limit_cpu(all, "portable").isa, Isa::Portable);
  EXPECT_EQ(detail::limit_cpu({}, "avx2").isa, Isa::Portable);
  EXPECT_THROW(detail::limit_cpu(all, "sse"), UserError);
}

}  // namespace
}  // namespace rlx::cpu
