// BitNet b1.58's ternary weights against worked values.
#include "quant/ternary.h"

#include <gtest/gtest.h>

namespace rlx {
namespace {

using Codes = std::vector<int>;

TEST(Ternary, WorkedExamples) {
  auto a = ternarize_per_tensor(Array(std::vector<float>{.125f, .375f, .25f, .25f}, {4}));
  EXPECT_EQ(a.scales.at(0), .25);
  EXPECT_EQ(a.codes.to_vector<int>(), (Codes{0, 1, 1, 1}));  // .5 goes to the even 0
  auto b = ternarize_per_tensor(Array(std::vector<float>{.3f, -.1f, .05f, -.6f, .2f, .4f, -.35f, 0}, {2, 4}));
  EXPECT_FLOAT_EQ(float(b.scales.at(0)), .25f);
  EXPECT_EQ(b.codes.to_vector<int>(), (Codes{1, 0, 0, -1, 1, 1, -1, 0}));
  EXPECT_EQ(b.codes.shape(), (Extents{2, 4}));
  EXPECT_EQ(b.scales.shape(), (Extents{1, 1}));
}

TEST(Ternary, RoundsAndDoesNotTruncate) {
  const float x[] = {-1.2f, -1, -.9f, -.1f, 0, .1f, .9f, 1, 1.2f};
  std::int8_t codes[9];
  ternary_codes(x, 1, codes);
  EXPECT_EQ(Codes(codes, codes + 9), (Codes{-1, -1, -1, 0, 0, 0, 1, 1, 1}));
}

// The code is clamp(nearbyint(w / scale), -1, 1) for every f32 near the places where it changes, and at the extremes.
TEST(Ternary, CodeIsTheFormula) {
  for (float scale : {1.f, .25f, .3f, 1e-5f, 3e38f, 1e-38f})
    for (float ratio : {-2.f, -1.5f, -1.f, -.5f, -0.f, 0.f, .5f, 1.f, 1.5f, 1e30f}) {
      float w = ratio * scale;
      for (int step = -100; step <= 100; ++step, w = std::nextafter(w, 1e38f)) {
        float q = std::nearbyint(w / scale);
        ASSERT_EQ(ternary_code(w, scale), int(std::min(1.f, std::max(-1.f, q)))) << w << " / " << scale;
      }
    }
}

TEST(Ternary, ZeroRowsAndMatricesStayFinite) {
  auto row = ternarize_per_channel(Array(std::vector<float>{1, -2, 0, 0}, {2, 2}), {-1});
  EXPECT_EQ(row.scales.to_vector<float>(), (std::vector<float>{1.5f, 1e-5f}));
  EXPECT_EQ(row.codes.to_vector<int>(), (Codes{1, -1, 0, 0}));
  auto all = ternarize_per_tensor(Array(DType::F32, {3, 3}));
  EXPECT_EQ(float(all.scales.at(0)), 1e-5f);
  EXPECT_EQ(all.codes.to_vector<int>(), Codes(9));
  EXPECT_EQ(ternarize_per_tensor(Array(DType::F32, {0, 3})).codes.size(), 0);
  EXPECT_EQ(ternary_scale({}, .5f), .5f);
}

TEST(Ternary, EpsilonIsAFloor) {
  const float w[] = {.2f, -.2f};
  EXPECT_EQ(ternary_scale(w, 1e-5f), .2f);
  EXPECT_EQ(ternary_scale(w, .3f), .3f);
}

TEST(Ternary, PerChannelReducesTheNamedAxes) {
  // Numbers 1 … 24 as [2,3,4]; NumPy: abs(w).mean(axis, keepdims=True).
  std::vector<float> values(24);
  for (int i = 0; i < 24; ++i) values[std::size_t(i)] = float(i + 1) * (i % 2 ? -1 : 1);
  Array w(values, {2, 3, 4});
  auto k = ternarize_per_channel(w, {-2});
  EXPECT_EQ(k.scales.shape(), (Extents{2, 1, 4}));
  EXPECT_EQ(k.scales.to_vector<float>(), (std::vector<float>{5, 6, 7, 8, 17, 18, 19, 20}));
  EXPECT_EQ(k.codes.to_vector<int>(),
            (Codes{0, 0, 0, 0, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1}));
  auto conv = ternarize_per_channel(w, {1, 2});
  EXPECT_EQ(conv.scales.shape(), (Extents{2, 1, 1}));
  EXPECT_EQ(conv.scales.to_vector<float>(), (std::vector<float>{6.5f, 18.5f}));
}

TEST(Ternary, SixteenBitWeightsAreWidened) {
  Array w(std::vector<float>{.125f, .375f, .25f, .25f}, {4});
  for (auto d : {DType::F16, DType::BF16})
    EXPECT_TRUE(identical(ternarize_per_tensor(w.cast(d)).codes, ternarize_per_tensor(w).codes));
}

TEST(Ternary, RefusesWhatHasNoCode) {
  EXPECT_THROW(ternarize_per_tensor(Array(std::vector<float>{1, NAN}, {2})), UserError);
  EXPECT_THROW(ternarize_per_tensor(Array(std::vector<float>{1, INFINITY}, {2})), UserError);
  EXPECT_THROW(ternarize_per_tensor(Array(DType::F64, {2})), UserError);
  EXPECT_THROW(ternarize_per_tensor(Array(DType::F32, {2}), 0), UserError);
  EXPECT_THROW(ternarize_per_channel(Array(DType::F32, {2}), {1}), UserError);
}

}  // namespace
}  // namespace rlx
