// Convolutions against a direct double-precision sum, published small cases, and the same bits for every thread count.
#include "backends/cpu/conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/parallel.h"
#include "rlx/base.h"

namespace rlx::cpu {
namespace {

using i64 = std::int64_t;
using Values = std::vector<float>;

i64 in_size(const ConvArgs& c) {
  i64 n = 1;
  for (int i = 0; i < c.spatial; ++i) n *= c.in[std::size_t(i)];
  return n;
}
i64 out_size(const ConvArgs& c) {
  i64 n = 1;
  for (int i = 0; i < c.spatial; ++i) n *= c.out(i);
  return n;
}
i64 kernel_size(const ConvArgs& c) {
  i64 n = 1;
  for (int i = 0; i < c.spatial; ++i) n *= c.kernel[std::size_t(i)];
  return n;
}

Values random_values(i64 n, unsigned seed) {
  std::mt19937 gen(seed);
  Values v(static_cast<std::size_t>(n));
  for (auto& x : v) x = std::uniform_real_distribution<float>(-1, 1)(gen);
  return v;
}

/// Calls f(x index, w index, y index) for every product of the convolution.
template <class F>
void for_each_product(ConvArgs c, F&& f) {
  for (int i = c.spatial; i < 3; ++i) {
    auto a = std::size_t(i);
    c.in[a] = c.kernel[a] = c.stride[a] = c.dilation[a] = 1, c.pad_begin[a] = c.pad_end[a] = 0;
  }
  c.spatial = 3;
  i64 ci = c.in_channels / c.groups, co = c.out_channels / c.groups;
  for (i64 n = 0; n < c.batch; ++n)
    for (i64 o = 0; o < c.out_channels; ++o)
      for (i64 i = 0; i < ci; ++i)
        for (i64 d = 0; d < c.out(0); ++d)
          for (i64 h = 0; h < c.out(1); ++h)
            for (i64 w = 0; w < c.out(2); ++w)
              for (i64 kd = 0; kd < c.kernel[0]; ++kd)
                for (i64 kh = 0; kh < c.kernel[1]; ++kh)
                  for (i64 kw = 0; kw < c.kernel[2]; ++kw) {
                    i64 at[3] = {d * c.stride[0] - c.pad_begin[0] + kd * c.dilation[0],
                                 h * c.stride[1] - c.pad_begin[1] + kh * c.dilation[1],
                                 w * c.stride[2] - c.pad_begin[2] + kw * c.dilation[2]};
                    bool inside = true;
                    for (std::size_t a = 0; a < 3; ++a) inside = inside && at[a] >= 0 && at[a] < c.in[a];
                    if (!inside) continue;
                    i64 x =
                        (((n * c.in_channels + o / co * ci + i) * c.in[0] + at[0]) * c.in[1] + at[1]) * c.in[2] + at[2];
                    i64 k = (((o * ci + i) * c.kernel[0] + kd) * c.kernel[1] + kh) * c.kernel[2] + kw;
                    i64 y = (((n * c.out_channels + o) * c.out(0) + d) * c.out(1) + h) * c.out(2) + w;
                    f(std::size_t(x), std::size_t(k), std::size_t(y));
                  }
}

void expect_close(const Values& got, const std::vector<double>& want, const std::vector<double>& size,
                  const char* what) {
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], size[i] * 2e-6 + 1e-30) << what << " at " << i;
}

void check_case(const ConvArgs& c) {
  auto x = random_values(c.batch * c.in_channels * in_size(c), 1);
  auto w = random_values(c.out_channels * (c.in_channels / c.groups) * kernel_size(c), 2);
  auto g = random_values(c.batch * c.out_channels * out_size(c), 3);
  Values y(g.size(), 7.0f), dx(x.size(), 7.0f), dw(w.size(), 7.0f), packed_y(g.size(), 7.0f);
  ASSERT_TRUE(conv_forward(c, x.data(), w.data(), y.data()));
  ASSERT_TRUE(conv_backward_data(c, g.data(), w.data(), dx.data()));
  ASSERT_TRUE(conv_backward_weights(c, x.data(), g.data(), dw.data()));
  std::vector<double> want_y(y.size()), want_x(x.size()), want_w(w.size()), size_y(y.size()), size_x(x.size()),
      size_w(w.size());
  for_each_product(c, [&](std::size_t xi, std::size_t wi, std::size_t yi) {
    double a = x[xi], b = w[wi], d = g[yi];
    want_y[yi] += a * b, size_y[yi] += std::fabs(a * b);
    want_x[xi] += d * b, size_x[xi] += std::fabs(d * b);
    want_w[wi] += a * d, size_w[wi] += std::fabs(a * d);
  });
  expect_close(y, want_y, size_y, "y");
  expect_close(dx, want_x, size_x, "dx");
  expect_close(dw, want_w, size_w, "dw");
  auto packed = pack_weights(c, w.data());
  ASSERT_TRUE(conv_forward(c, x.data(), w.data(), packed_y.data(), packed.get()));
  EXPECT_EQ(y, packed_y);
}

TEST(Conv, TwoAxes) {
  check_case({.batch = 2,
              .in_channels = 3,
              .out_channels = 8,
              .in = {12, 10},
              .kernel = {3, 3},
              .pad_begin = {1, 1},
              .pad_end = {1, 1}});
  check_case({.batch = 1,
              .in_channels = 16,
              .out_channels = 70,
              .in = {9, 7},
              .kernel = {3, 2},
              .pad_begin = {2, 0},
              .pad_end = {0, 1}});
  check_case({.batch = 3,
              .in_channels = 5,
              .out_channels = 7,
              .in = {16, 16},
              .kernel = {7, 7},
              .stride = {3, 3},
              .pad_begin = {2, 2},
              .pad_end = {2, 2}});
  check_case({.batch = 2,
              .in_channels = 4,
              .out_channels = 6,
              .in = {14, 13},
              .kernel = {3, 3},
              .stride = {2, 1},
              .dilation = {2, 3},
              .pad_begin = {1, 0},
              .pad_end = {3, 2}});
  check_case({.batch = 2, .in_channels = 33, .out_channels = 17, .in = {5, 6}, .kernel = {1, 1}});
  check_case({.batch = 2, .in_channels = 16, .out_channels = 32, .in = {9, 8}, .kernel = {1, 1}, .stride = {2, 2}});
  check_case({.batch = 1, .in_channels = 1, .out_channels = 1, .in = {1, 1}, .kernel = {1, 1}});
}

// A kernel of one point, also with strides that leave points unread.
TEST(Conv, Products) {
  check_case({.batch = 3, .in_channels = 12, .out_channels = 20, .in = {20, 17}, .kernel = {1, 1}, .stride = {1, 1}});
  check_case({.batch = 3, .in_channels = 12, .out_channels = 20, .in = {40, 37}, .kernel = {1, 1}, .stride = {2, 3}});
  check_case({.batch = 1, .in_channels = 5, .out_channels = 4, .in = {9, 8}, .kernel = {1, 1}, .stride = {3, 2}});
  check_case({.spatial = 1, .batch = 2, .in_channels = 5, .out_channels = 4, .in = {9}, .kernel = {1}, .stride = {4}});
  check_case({.spatial = 3,
              .batch = 2,
              .in_channels = 5,
              .out_channels = 4,
              .in = {5, 6, 7},
              .kernel = {1, 1, 1},
              .stride = {2, 3, 2}});
}

// The sampled points and what the product packs are in scratch memory at the same time.
TEST(Conv, LargeSampledProduct) {
  check_case({.batch = 1, .in_channels = 64, .out_channels = 600, .in = {64, 64}, .kernel = {1, 1}, .stride = {2, 2}});
}

TEST(Conv, Groups) {
  check_case({.batch = 2,
              .in_channels = 20,
              .out_channels = 20,
              .groups = 20,
              .in = {8, 9},
              .kernel = {3, 3},
              .pad_begin = {1, 1},
              .pad_end = {1, 1}});
  check_case({.batch = 2,
              .in_channels = 8,
              .out_channels = 16,
              .groups = 8,
              .in = {7, 7},
              .kernel = {3, 3},
              .stride = {2, 2}});
  check_case({.batch = 3,
              .in_channels = 12,
              .out_channels = 18,
              .groups = 3,
              .in = {6, 8},
              .kernel = {2, 3},
              .pad_begin = {0, 1},
              .pad_end = {1, 1}});
  check_case({.batch = 1, .in_channels = 32, .out_channels = 64, .groups = 2, .in = {6, 6}, .kernel = {1, 1}});
}

TEST(Conv, OneAndThreeAxes) {
  check_case({.spatial = 1,
              .batch = 2,
              .in_channels = 6,
              .out_channels = 5,
              .in = {40},
              .kernel = {5},
              .stride = {2},
              .pad_begin = {4},
              .pad_end = {0}});
  check_case({.spatial = 1,
              .batch = 3,
              .in_channels = 32,
              .out_channels = 32,
              .groups = 32,
              .in = {50},
              .kernel = {4},
              .pad_begin = {3}});
  check_case({.spatial = 3,
              .batch = 2,
              .in_channels = 3,
              .out_channels = 4,
              .in = {6, 5, 7},
              .kernel = {3, 2, 3},
              .stride = {1, 2, 2},
              .pad_begin = {1, 0, 1},
              .pad_end = {1, 1, 0}});
}

// Large enough to be cut by images and by channels, with smaller parts at the ends.
TEST(Conv, ManyParts) {
  check_case({.batch = 9,
              .in_channels = 40,
              .out_channels = 48,
              .in = {14, 14},
              .kernel = {3, 3},
              .pad_begin = {1, 1},
              .pad_end = {1, 1}});
  check_case({.batch = 1,
              .in_channels = 72,
              .out_channels = 100,
              .in = {20, 20},
              .kernel = {3, 3},
              .pad_begin = {1, 1},
              .pad_end = {1, 1}});
  check_case({.batch = 1,
              .in_channels = 40,
              .out_channels = 40,
              .groups = 40,
              .in = {64, 64},
              .kernel = {7, 7},
              .pad_begin = {3, 3},
              .pad_end = {3, 3}});
  check_case({.batch = 5,
              .in_channels = 3,
              .out_channels = 40,
              .in = {50, 50},
              .kernel = {5, 5},
              .stride = {2, 2},
              .pad_begin = {2, 2},
              .pad_end = {2, 2}});
}

// 6×6 ones, a kernel of ones, stride 2: what the output size rounds away gets no gradient.
TEST(Conv, LastRowsThatNoOutputReads) {
  ConvArgs c{.batch = 1, .in_channels = 1, .out_channels = 1, .in = {6, 6}, .kernel = {3, 3}, .stride = {2, 2}};
  Values ones(36, 1.0f), dx(36, 9.0f);
  ASSERT_EQ(c.out(0), 2);
  ASSERT_TRUE(conv_backward_data(c, ones.data(), ones.data(), dx.data()));
  const float count[] = {1, 1, 2, 1, 1, 0};
  for (std::size_t i = 0; i < 6; ++i)
    for (std::size_t j = 0; j < 6; ++j) EXPECT_EQ(dx[i * 6 + j], count[i] * count[j]);
}

TEST(Conv, PublishedCaseWithDilation) {
  ConvArgs c{.spatial = 1,
             .batch = 1,
             .in_channels = 2,
             .out_channels = 2,
             .in = {2},
             .kernel = {2},
             .stride = {2},
             .dilation = {2},
             .pad_begin = {1},
             .pad_end = {1}};
  Values x{7, 3, 3, 2}, w{3, 6, 4, 2, 0, 0, 0, 0};
  // One input row holds two channels of two; the weights are [[3,6],[4,2]] on the first and zeros on the second.
  c.in_channels = 1, c.batch = 2, w = {3, 6, 4, 2};
  Values y(4), dw(4), dx(4), g(4, 1.0f);
  ASSERT_TRUE(conv_forward(c, x.data(), w.data(), y.data()));
  EXPECT_EQ(y, (Values{18, 6, 12, 4}));
  ASSERT_TRUE(conv_backward_weights(c, x.data(), g.data(), dw.data()));
  EXPECT_EQ(dw, (Values{0, 5, 0, 5}));
  ASSERT_TRUE(conv_backward_data(c, g.data(), w.data(), dx.data()));
  EXPECT_EQ(dx, (Values{0, 8, 0, 8}));
}

TEST(Conv, ZeroSizes) {
  float one = 1;
  Values out(72, 9.0f);
  ConvArgs none{.batch = 0, .in_channels = 2, .out_channels = 4, .in = {4, 4}, .kernel = {3, 3}};
  EXPECT_TRUE(conv_forward(none, &one, &one, out.data()));
  EXPECT_EQ(out[0], 9);
  EXPECT_TRUE(conv_backward_weights(none, &one, &one, out.data()));
  for (float v : out) EXPECT_EQ(v, 0);
  ConvArgs no_channels{.batch = 1, .in_channels = 0, .out_channels = 4, .in = {4, 4}, .kernel = {3, 3}};
  out.assign(72, 9.0f);
  EXPECT_TRUE(conv_forward(no_channels, &one, &one, out.data()));
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(out[i], 0);
  ConvArgs too_small{.batch = 1, .in_channels = 1, .out_channels = 1, .in = {2, 2}, .kernel = {3, 3}};
  EXPECT_EQ(too_small.out(0), 0);
  EXPECT_TRUE(conv_backward_data(too_small, &one, &one, out.data()));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(out[i], 0);
}

TEST(Conv, RefusesNonsense) {
  float v = 0;
  ConvArgs good{.batch = 1, .in_channels = 4, .out_channels = 4, .in = {4, 4}, .kernel = {3, 3}};
  auto with = [&](auto change) {
    ConvArgs c = good;
    change(c);
    return c;
  };
  EXPECT_THROW(conv_forward(with([](auto& c) { c.groups = 0; }), &v, &v, &v), UserError);
  EXPECT_THROW(conv_forward(with([](auto& c) { c.groups = 3; }), &v, &v, &v), UserError);
  EXPECT_THROW(conv_forward(with([](auto& c) { c.stride[1] = 0; }), &v, &v, &v), UserError);
  EXPECT_THROW(conv_backward_data(with([](auto& c) { c.dilation[0] = 0; }), &v, &v, &v), UserError);
  EXPECT_THROW(conv_backward_weights(with([](auto& c) { c.spatial = 4; }), &v, &v, &v), UserError);
  EXPECT_FALSE(conv_forward(with([](auto& c) { c.pad_begin[0] = -1; }), &v, &v, &v));
}

TEST(Conv, BitsDoNotDependOnThreads) {
  for (ConvArgs c : {ConvArgs{.batch = 9,
                    .in_channels = 40,
                    .out_channels = 48,
                    .in = {14, 14},
                    .kernel = {3, 3},
                    .pad_begin = {1, 1},
                    .pad_end = {1, 1}},
                     ConvArgs{.batch = 1, .in_channels = 72, .out_channels = 100, .in = {20, 20}, .kernel = {3, 3}}}) {
    auto x = random_values(c.batch * c.in_channels * in_size(c), 1);
    auto w = random_values(c.out_channels * c.in_channels * kernel_size(c), 2);
    auto g = random_values(c.batch * c.out_channels * out_size(c), 3);
    Values first[3];
    for (int threads : {1, 2, 3}) {
      set_num_threads(threads);
      Values y(g.size()), dx(x.size()), dw(w.size());
      conv_forward(c, x.data(), w.data(), y.data());
      conv_backward_data(c, g.data(), w.data(), dx.data());
      conv_backward_weights(c, x.data(), g.data(), dw.data());
      if (threads == 1) first[0] = y, first[1] = dx, first[2] = dw;
      EXPECT_EQ(y, first[0]);
      EXPECT_EQ(dx, first[1]);
      EXPECT_EQ(dw, first[2]);
    }
  }
  set_num_threads(default_num_threads());
}

}  // namespace
}  // namespace rlx::cpu
