// What scaled tensors lose: blocks flushed to zero, values clipped; and what is refused.
#include "quant/scaled.h"

#include <gtest/gtest.h>

#include <cmath>

#include "message_of.h"

namespace rlx {
namespace {

Array row(std::vector<float> values) {
  auto n = std::int64_t(values.size());
  return Array(values, {1, n});
}

TEST(ScaledTensor, ASmallBlockBesideAHugeOneIsFlushedAndCounted) {
  std::vector<float> x(48, 0.f);
  x[0] = 1e6f, x[16] = 0.1f, x[32] = 1.f;  // the second is below what the least block scale can hold
  auto t = scaled_quantize(row(x), Format::F4E2M1, ScaleLayout::Nvfp4);
  EXPECT_EQ(t.flushed, 1);
  Array back = scaled_dequantize(t);
  EXPECT_NEAR(back.at(0), 1e6, 1);
  EXPECT_EQ(back.at(16), 0);
  EXPECT_NE(back.at(32), 0);
  for (std::int64_t i = 0; i < back.size(); ++i) EXPECT_TRUE(std::isfinite(back.at(i)));
  auto scales = t.scale.values<std::uint8_t>();
  for (auto s : scales) EXPECT_NE(s & 0x7f, 0x7f);
}

TEST(ScaledTensor, ABlockOfZerosIsNotFlushed) {
  for (auto layout : {ScaleLayout::PerTensor, ScaleLayout::Mx, ScaleLayout::Nvfp4}) {
    auto t = scaled_quantize(row(std::vector<float>(40, 0.f)), Format::F4E2M1, layout);
    EXPECT_EQ(t.flushed, 0);
    EXPECT_EQ(t.clipped, 0);
    Array back = scaled_dequantize(t);
    for (std::int64_t i = 0; i < back.size(); ++i) EXPECT_EQ(back.at(i), 0);
  }
}

// 7 has the exponent of 4, and would round to 8, which f4e2m1 lacks: the floor rule clips it, the ceil rule does not.
TEST(ScaledTensor, TheFloorRuleClips) {
  auto x = row({7, 1, -7, 0.5f});
  auto floor = scaled_quantize(x, Format::F4E2M1, ScaleLayout::Mx, MxRule::Floor);
  EXPECT_EQ(floor.clipped, 2);
  EXPECT_EQ(scaled_dequantize(floor).at(0), 6);
  auto ceil = scaled_quantize(x, Format::F4E2M1, ScaleLayout::Mx, MxRule::Ceil);
  EXPECT_EQ(ceil.clipped, 0);
  EXPECT_EQ(scaled_dequantize(ceil).at(0), 8);
  // 464 is a tie that rounds down to 448, what is above does not.
  EXPECT_EQ(scaled_quantize(row({464, 256}), Format::F8E4M3, ScaleLayout::Mx, MxRule::Floor).clipped, 0);
  EXPECT_EQ(scaled_quantize(row({465, 256}), Format::F8E4M3, ScaleLayout::Mx, MxRule::Floor).clipped, 1);
}

TEST(ScaledTensor, SizesOfScales) {
  auto t = scaled_quantize(Array(DType::F32, {2, 3, 33}), Format::F8E4M3, ScaleLayout::Mx);
  EXPECT_EQ(t.scale.type(), (Type{DType::U8, {2, 3, 2}}));
  EXPECT_EQ(scaled_quantize(Array(DType::F32, {2, 33}), Format::F4E2M1, ScaleLayout::Nvfp4).scale.type(),
            (Type{DType::U8, {2, 3}}));
  EXPECT_EQ(scaled_quantize(Array(DType::F32, {4, 0}), Format::F8E4M3, ScaleLayout::Mx).scale.type(),
            (Type{DType::U8, {4, 0}}));
  EXPECT_EQ(scaled_dequantize(scaled_quantize(Array(DType::F32, {}), Format::F8E4M3, ScaleLayout::PerTensor)).size(),
            1);
}

std::string error_of(const Array& x, Format format, ScaleLayout layout) {
  return message_of([&] { scaled_quantize(x, format, layout); });
}

TEST(ScaledTensor, WhatDoesNotFitIsAnError) {
  Array x(DType::F32, {1, 4});
  EXPECT_EQ(error_of(x, Format::F8E4M3, ScaleLayout::Nvfp4), "[scaled_quantize] nvfp4 holds f4e2m1 codes, not f8e4m3");
  EXPECT_EQ(error_of(x, Format::Int8, ScaleLayout::Mx), "[scaled_quantize] int8 is no float format");
  EXPECT_EQ(error_of(Array(DType::I32, {1, 4}), Format::F8E4M3, ScaleLayout::Mx),
            "[scaled_quantize] got i32[1,4], expected f32, f16 or bf16");
  EXPECT_EQ(error_of(Array(DType::F32, {}), Format::F8E4M3, ScaleLayout::Mx),
            "[scaled_quantize] blocks lie along the last axis, got a scalar");
}

}  // namespace
}  // namespace rlx
