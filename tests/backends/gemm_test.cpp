// gemm against a double-precision (or 64-bit integer) product: sizes around every tile edge, layouts, dtypes, batches;
// and the same bits for every number of threads.
#include "backends/cpu/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>
#include <vector>

#include "base/parallel.h"

namespace rlx::cpu {
namespace {

using i64 = std::int64_t;

struct Layout {
  bool by_columns;
  i64 pad;
  i64 row(i64 cols) const { return by_columns ? 1 : cols + pad; }
  i64 col(i64 rows) const { return by_columns ? rows + pad : 1; }
  i64 count(i64 rows, i64 cols) const { return by_columns ? (rows + pad) * cols : rows * (cols + pad); }
};

template <class T>
std::vector<T> random_values(i64 n, unsigned seed) {
  std::mt19937 gen(seed);
  std::vector<T> v(static_cast<std::size_t>(n));
  for (auto& x : v) {
    if constexpr (std::is_integral_v<T>) {
      T extremes[] = {std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
      x = gen() % 4 == 0 ? extremes[gen() % 2] : T(gen());
    } else {
      x = T(std::uniform_real_distribution<float>(-1, 1)(gen));
    }
  }
  return v;
}

template <class T>
double wide(T v) {
  return double(float(v));
}
template <>
double wide(std::int8_t v) {
  return v;
}
template <>
double wide(std::uint8_t v) {
  return v;
}

/// One product of random operands in the given layouts, compared element by element; the gaps of C must stay untouched.
template <class A, class B>
void check_product(i64 m, i64 n, i64 k, Layout la, Layout lb, i64 c_pad, bool accumulate, i64 batch = 1) {
  using C = std::conditional_t<std::is_integral_v<A>, std::int32_t, float>;
  i64 a_count = la.count(m, k), b_count = lb.count(k, n), c_row = n + c_pad, c_count = m * c_row;
  auto a = random_values<A>(a_count * batch, 1), spare = random_values<A>(1, 2);
  auto b = random_values<B>(b_count * batch, 3);
  std::vector<C> c(static_cast<std::size_t>(c_count * batch));
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = C(int(i % 7) - 3);
  auto before = c;
  GemmArgs args{.a_type = dtype_of<A>(), .b_type = dtype_of<B>(), .batch = batch, .m = m, .n = n, .k = k};
  args.a = a.empty() ? spare.data() : a.data(), args.a_row = la.row(k), args.a_col = la.col(m), args.a_batch = a_count;
  args.b = b.data(), args.b_row = lb.row(n), args.b_col = lb.col(k), args.b_batch = b_count;
  args.c = c.data(), args.c_row = c_row, args.c_batch = c_count;
  args.accumulate = accumulate;
  gemm(args);
  for (i64 t = 0; t < batch; ++t)
    for (i64 i = 0; i < m; ++i)
      for (i64 j = 0; j < c_row; ++j) {
        auto at = std::size_t(t * c_count + i * c_row + j);
        if (j >= n) {
          ASSERT_EQ(c[at], before[at]) << "wrote past the row";
          continue;
        }
        double sum = accumulate ? double(before[at]) : 0, size = std::fabs(sum);
        for (i64 p = 0; p < k; ++p) {
          double x = wide(a[std::size_t(t * a_count + i * args.a_row + p * args.a_col)]) *
                     wide(b[std::size_t(t * b_count + p * args.b_row + j * args.b_col)]);
          sum += x, size += std::fabs(x);
        }
        if constexpr (std::is_integral_v<A>)
          ASSERT_EQ(double(c[at]), sum) << m << "x" << n << "x" << k << " at " << i << "," << j;
        else
          ASSERT_NEAR(c[at], sum, size * 6e-8 * (4 + double(k) / 16))
              << m << "x" << n << "x" << k << " at " << i << "," << j;
      }
}

constexpr i64 kSizes[] = {0, 1, 2, 3, 15, 16, 17, 31, 33, 64, 130};

template <class A, class B>
void check_all_sizes() {
  unsigned turn = 0;  // layouts, padding and accumulation take turns over the sizes
  for (i64 m : kSizes)
    for (i64 n : kSizes)
      for (i64 k : kSizes) {
        unsigned t = turn++ * 2654435761u >> 16;
        check_product<A, B>(m, n, k, {bool(t & 1), i64(t >> 4 & 1) * 3}, {bool(t & 2), i64(t >> 5 & 1) * 5},
                            i64(t >> 6 & 1) * 2, t & 4);
        if (testing::Test::HasFatalFailure()) return;
      }
}

TEST(Gemm, AllSizesF32) { check_all_sizes<float, float>(); }
TEST(Gemm, AllSizesBf16) { check_all_sizes<bf16, bf16>(); }
TEST(Gemm, AllSizesS8) { check_all_sizes<std::int8_t, std::int8_t>(); }
TEST(Gemm, AllSizesU8S8) { check_all_sizes<std::uint8_t, std::int8_t>(); }

template <class A, class B>
void check_layouts() {
  for (auto [m, n, k] : {std::array<i64, 3>{33, 17, 70}, {1, 130, 33}, {130, 1, 33}, {2, 64, 1}, {540, 100, 66}, {600, 1024, 65}, {70, 300, 130}})
    for (int layouts = 0; layouts < 8; ++layouts)
      for (i64 pad : {0, 1})
        check_product<A, B>(m, n, k, {bool(layouts & 1), pad}, {bool(layouts & 2), pad}, pad, layouts & 4);
}
TEST(Gemm, LayoutsF32) { check_layouts<float, float>(); }
TEST(Gemm, LayoutsBf16) { check_layouts<bf16, bf16>(); }
TEST(Gemm, LayoutsS8) { check_layouts<std::int8_t, std::int8_t>(); }
TEST(Gemm, LayoutsU8S8) { check_layouts<std::uint8_t, std::int8_t>(); }

TEST(Gemm, Batches) {
  for (i64 batch : {0, 1, 2, 7, 40}) {
    check_product<float, float>(9, 20, 33, {false, 0}, {false, 0}, 0, false, batch);
    check_product<float, float>(9, 20, 33, {false, 1}, {true, 2}, 3, true, batch);
    check_product<float, float>(1, 20, 33, {false, 0}, {true, 0}, 0, false, batch);
    check_product<float, float>(3, 2, 4, {true, 0}, {true, 0}, 0, true, batch * 100);
    check_product<bf16, bf16>(16, 64, 16, {true, 0}, {false, 0}, 0, false, batch);
    check_product<std::int8_t, std::int8_t>(5, 6, 7, {false, 0}, {true, 0}, 0, false, batch);
  }
}

TEST(Gemm, OneOperandForAllItems) {
  auto a = random_values<float>(6 * 5 * 8, 1), b = random_values<float>(8 * 10, 2);
  std::vector<float> c(6 * 5 * 10), d(6 * 5 * 10);
  gemm({.batch = 6,
        .m = 5,
        .n = 10,
        .k = 8,
        .a = a.data(),
        .a_row = 8,
        .a_batch = 40,
        .b = b.data(),
        .b_row = 10,
        .c = c.data(),
        .c_row = 10,
        .c_batch = 50});
  gemm({.m = 30, .n = 10, .k = 8, .a = a.data(), .a_row = 8, .b = b.data(), .b_row = 10, .c = d.data(), .c_row = 10});
  EXPECT_EQ(c, d);
}

// Heads of attention: q, k and the result stay [sequence, head, dim], outer is the batch.
TEST(Gemm, ItemsOfTwoLevels) {
  constexpr i64 kBatch = 2, kHeads = 3, kLength = 5, kDim = 4;
  auto q = random_values<float>(kBatch * kLength * kHeads * kDim, 1),
       v = random_values<float>(kBatch * kLength * kHeads * kDim, 2);
  std::vector<float> scores(kBatch * kHeads * kLength * kLength);
  i64 row = kHeads * kDim, item = kLength * kLength;
  gemm({.outer = kBatch,
        .batch = kHeads,
        .m = kLength,
        .n = kLength,
        .k = kDim,
        .a = q.data(),
        .a_row = row,
        .a_col = 1,
        .a_batch = kDim,
        .a_outer = kLength * row,
        .b = v.data(),
        .b_row = 1,
        .b_col = row,
        .b_batch = kDim,
        .b_outer = kLength * row,
        .c = scores.data(),
        .c_row = kLength,
        .c_batch = item,
        .c_outer = kHeads * item});
  for (i64 s = 0; s < kBatch; ++s)
    for (i64 h = 0; h < kHeads; ++h)
      for (i64 i = 0; i < kLength; ++i)
        for (i64 j = 0; j < kLength; ++j) {
          double sum = 0;
          for (i64 d = 0; d < kDim; ++d)
            sum += double(q[std::size_t((s * kLength + i) * row + h * kDim + d)]) *
                   double(v[std::size_t((s * kLength + j) * row + h * kDim + d)]);
          EXPECT_NEAR(scores[std::size_t(((s * kHeads + h) * kLength + i) * kLength + j)], sum, 1e-6);
        }
}

// oneDNN and many others saturate u8·s8 pairs at 32767 without VNNI: 255·127 + 255·127 = 64770.
TEST(Gemm, EightBitSumsDoNotSaturate) {
  for (i64 m : {1, 2, 40})
    for (i64 k : {2, 64, 3000}) {
      std::vector<std::uint8_t> a(std::size_t(m * k), 255);
      std::vector<std::int8_t> b(std::size_t(k * 3), 127), low_a(std::size_t(m * k), -128),
          low_b(std::size_t(k * 3), -128);
      std::vector<std::int32_t> c(std::size_t(m * 3));
      GemmArgs args{.a_type = DType::U8,
                    .b_type = DType::I8,
                    .m = m,
                    .n = 3,
                    .k = k,
                    .a = a.data(),
                    .a_row = k,
                    .b = b.data(),
                    .b_row = 3,
                    .c = c.data(),
                    .c_row = 3};
      gemm(args);
      for (auto v : c) EXPECT_EQ(v, 255 * 127 * k);
      args.a_type = DType::I8, args.a = low_a.data(), args.b = low_b.data();
      gemm(args);
      for (auto v : c) EXPECT_EQ(v, 128 * 128 * k);
    }
}

template <class A, class B>
void check_threads(i64 m, i64 n, i64 k, bool a_cols, bool b_cols, i64 batch) {
  using C = std::conditional_t<std::is_integral_v<A>, std::int32_t, float>;
  auto a = random_values<A>(batch * m * k, 1);
  auto b = random_values<B>(batch * k * n, 2);
  std::vector<C> first;
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    std::vector<C> c(static_cast<std::size_t>(batch * m * n));
    gemm({.a_type = dtype_of<A>(),
          .b_type = dtype_of<B>(),
          .batch = batch,
          .m = m,
          .n = n,
          .k = k,
          .a = a.data(),
          .a_row = a_cols ? 1 : k,
          .a_col = a_cols ? m : 1,
          .a_batch = m * k,
          .b = b.data(),
          .b_row = b_cols ? 1 : n,
          .b_col = b_cols ? k : 1,
          .b_batch = k * n,
          .c = c.data(),
          .c_row = n,
          .c_batch = m * n});
    if (threads == 1) first = c;
    EXPECT_EQ(0, std::memcmp(c.data(), first.data(), c.size() * sizeof(C)))
        << threads << " threads, " << m << "x" << n << "x" << k;
  }
  set_num_threads(default_num_threads());
}

TEST(Gemm, BitsDoNotDependOnThreads) {
  for (int layouts = 0; layouts < 4; ++layouts) {
    bool a = layouts & 1, b = layouts & 2;
    check_threads<float, float>(600, 300, 200, a, b, 1);
    check_threads<float, float>(256, 256, 2048, a, b, 1);
    check_threads<float, float>(100, 64, 100, a, b, 5);
    check_threads<float, float>(1, 1000, 700, a, b, 1);
    check_threads<bf16, bf16>(600, 300, 200, a, b, 1);
    check_threads<bf16, bf16>(1, 1000, 700, a, b, 1);
    check_threads<std::int8_t, std::int8_t>(600, 300, 200, a, b, 1);
    check_threads<std::int8_t, std::int8_t>(1, 1000, 700, a, b, 1);
  }
}

i64 tasks() {
  namespace fs = std::filesystem;
  return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
}

TEST(Gemm, ThreadCountBoundsEveryPool) {
  auto a = random_values<float>(512 * 512, 1), b = random_values<float>(512 * 512, 2);
  std::vector<float> c(512 * 512);
  auto run = [&] {
    gemm({.m = 512,
          .n = 512,
          .k = 512,
          .a = a.data(),
          .a_row = 512,
          .b = b.data(),
          .b_row = 512,
          .c = c.data(),
          .c_row = 512});
  };
  set_num_threads(1);
  i64 before = tasks();
  run();
  EXPECT_EQ(tasks(), before);
  set_num_threads(3);
  run();
  EXPECT_EQ(tasks(), before + 2);
  set_num_threads(1);
  EXPECT_EQ(tasks(), before);
  set_num_threads(default_num_threads());
}

TEST(Gemm, RefusesWhatItCannot) {
  float x[16] = {};
  EXPECT_THROW(gemm({.a_type = DType::F64, .b_type = DType::F64, .m = 1, .n = 1, .k = 1}), Unsupported);
  EXPECT_THROW(gemm({.m = -1, .n = 1, .k = 1}), UserError);
  EXPECT_THROW(gemm({.m = 2, .n = 2, .k = 2, .a = x, .a_row = 1, .b = x, .b_row = 2, .c = x, .c_row = 2}), UserError);
  EXPECT_THROW(gemm({.m = 2, .n = 2, .k = 2, .a = x, .a_row = 4, .a_col = 2, .b = x, .b_row = 2, .c = x, .c_row = 2}),
               UserError);
  EXPECT_THROW(gemm({.m = 2, .n = 2, .k = 2, .a = x, .a_row = 2, .b = x, .b_row = 2, .c = x, .c_row = 1}), UserError);
}

}  // namespace
}  // namespace rlx::cpu
