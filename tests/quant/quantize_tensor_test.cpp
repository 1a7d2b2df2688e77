// The types of tensors in safetensors files: codes, scales, packing, and the blocks that are hard to scale.
#include "quant/quantize_tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "message_of.h"
#include "quant/scaled.h"

namespace rlx {
namespace {

Array floats(const std::vector<float>& values, Extents shape) { return Array(values, std::move(shape)); }

Array waves(Extents shape, double magnitude = 1) {
  Array out(DType::F32, std::move(shape));
  for (std::int64_t i = 0; i < out.size(); ++i)
    out.values<float>()[std::size_t(i)] = float(magnitude * std::sin(0.7 * double(i) + 0.1));
  return out;
}

QuantizedArray quantized(const Array& x, const char* type, MxRule rule = MxRule::Ceil) {
  return quantize_array(x, tensor_type(type), rule, "w");
}
Array round_trip(const Array& x, const char* type) { return dequantize_array(quantized(x, type)); }

const std::vector<const char*> kTypes = {"f32",        "f16",    "bf16",  "mxfp8",      "mxfp8_e5m2", "mxfp6",
                                         "mxfp6_e3m2", "mxfp4",  "nvfp4", "int8",       "int4",       "ternary",
                                         "f8e4m3",     "f8e5m2", "e3m3",  "f8e4m3fnuz", "f4e2m1"};

TEST(QuantizeTensor, CodesArePackedWithinRows) {
  for (int bits : {2, 3, 4, 5, 6, 7, 8}) {
    Array codes(DType::U8, {3, 7});
    for (std::int64_t i = 0; i < 21; ++i)
      codes.values<std::uint8_t>()[std::size_t(i)] = std::uint8_t((37 * i + 11) & ((1 << bits) - 1));
    Array packed = pack_codes(codes, bits);
    EXPECT_EQ(packed.shape(), (Extents{3, (7 * bits + 7) / 8}));
    EXPECT_TRUE(identical(unpack_codes(packed, {3, 7}, bits), codes)) << bits;
  }
  Array nibbles(std::vector<std::uint8_t>{1, 2, 3}, {1, 3});
  Array packed = pack_codes(nibbles, 4);
  EXPECT_EQ(packed.values<std::uint8_t>()[0], 0x21);  // the first in the low nibble
  EXPECT_EQ(packed.values<std::uint8_t>()[1], 0x03);
}

TEST(QuantizeTensor, PartsAreWhatQuantisingGives) {
  for (auto name : kTypes)
    for (Extents shape : {Extents{4, 64}, {3, 33}, {2, 3, 17}, {5}}) {
      auto q = quantized(waves(shape), name);
      std::int64_t bytes = 0;
      for (auto& part : parts_of(q.type, shape)) {
        EXPECT_EQ((q.*part.array).dtype(), part.dtype) << name << part.suffix;
        EXPECT_EQ((q.*part.array).shape(), part.shape) << name << part.suffix;
        bytes += std::int64_t((q.*part.array).byte_size());
      }
      EXPECT_EQ(q.bytes(), bytes);
      EXPECT_EQ(dequantize_array(q).shape(), shape);
    }
}

TEST(QuantizeTensor, ErrorsAreThoseOfTheFormats) {
  Array x = waves({8, 128});
  const std::pair<const char*, double> kBounds[] = {{"f32", 0},      {"f16", 5e-4},   {"bf16", 4e-3},  {"mxfp8", 0.07},
                                                    {"mxfp6", 0.07}, {"mxfp4", 0.26}, {"nvfp4", 0.18}, {"int8", 0.004},
                                                    {"int4", 0.072}, {"f8e4m3", 0.04}};
  for (auto& [name, bound] : kBounds) {
    Array y = round_trip(x, name);
    for (std::int64_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y.at(i), x.at(i), bound) << name;
  }
}

// Two elements a byte, and two bytes for each 32 of a scale.
TEST(QuantizeTensor, Int4HasHalfAByteAnElement) {
  EXPECT_EQ(quantized(waves({4, 64}), "int4").bytes(), 4 * 32 + 4 * 2 * 2);
  EXPECT_EQ(quantized(waves({1, 7}), "int4").codes.shape(), (Extents{1, 4}));
  EXPECT_EQ(quantized(waves({4, 64}), "mxfp4").bytes(), 4 * 32 + 4 * 2);
  EXPECT_EQ(quantized(waves({4, 64}), "nvfp4").bytes(), 4 * 32 + 4 * 4 + 4);
  EXPECT_EQ(quantized(waves({4, 64}), "mxfp6").bytes(), 4 * 48 + 4 * 2);
}

// Groups end where rows do, so that rows of odd length keep the scales of their own elements.
TEST(QuantizeTensor, OddRowsKeepTheirScales) {
  Array x = floats({1, 2, 3, 4, 5, 6, 7, 100, 200, 300, 400, 500, 600, 700}, {2, 7});
  for (auto name : {"int4", "int8", "mxfp4"}) {
    Array y = round_trip(x, name);
    for (std::int64_t i = 0; i < 14; ++i) EXPECT_NEAR(y.at(i) / x.at(i), 1, 0.3) << name << " " << i;
  }
  Array wide(DType::F32, {1, 33});
  for (int i = 0; i < 33; ++i) wide.values<float>()[std::size_t(i)] = i < 32 ? 7.f : 7000.f;
  Array back = round_trip(wide, "int4");
  EXPECT_EQ(back.at(31), 7);
  EXPECT_EQ(back.at(32), 7000);
}

TEST(QuantizeTensor, AZeroRowStaysZero) {
  Array x = floats({1, -2, 0, 0}, {2, 2});
  auto q = quantized(x, "int8");
  EXPECT_EQ(q.scale.at(1), 1);
  EXPECT_EQ(q.codes.at(0), 64);
  EXPECT_EQ(q.codes.at(1), -127);
  for (auto name : kTypes) {
    Array y = round_trip(x, name), z = round_trip(Array(DType::F32, {2, 40}), name);
    EXPECT_EQ(y.at(2), 0) << name;
    EXPECT_EQ(y.at(3), 0) << name;
    for (std::int64_t i = 0; i < z.size(); ++i) ASSERT_EQ(z.at(i), 0) << name;
  }
}

// A scale that f16 would round to 0 is the least above it.
TEST(QuantizeTensor, ScalesDoNotUnderflow) {
  auto q = quantized(waves({1, 32}, 1e-7), "int4");
  EXPECT_EQ(q.scale.at(0), 0x1p-24);
  for (auto name : kTypes)
    for (double magnitude : {1e-6, 1e-38, 1e-42, 1e38}) {
      if (magnitude > 1 && (name == std::string("f16") || name == std::string("int4"))) continue;
      Array y = round_trip(waves({2, 64}, magnitude), name);
      for (std::int64_t i = 0; i < y.size(); ++i)
        ASSERT_LE(std::fabs(y.at(i)), 1.3 * magnitude) << name << " " << magnitude;
    }
}

TEST(QuantizeTensor, RefusesWhatCannotBeHeld) {
  Array nan = waves({2, 32}), large = waves({2, 32}, 1e6), empty(DType::F32, {0, 32});
  nan.values<float>()[5] = NAN;
  for (auto name : {"int8", "int4", "ternary", "mxfp4", "nvfp4", "f8e4m3"}) {
    EXPECT_EQ(message_of<Error>([&] { quantized(nan, name); }),
              "[quantize] tensor \"w\": element 5 is nan, which " + std::string(name) + " cannot hold");
    EXPECT_NE(message_of<Error>([&] { quantized(empty, name); }).find("it has no elements"), std::string::npos);
  }
  EXPECT_TRUE(std::isnan(round_trip(nan, "f16").at(5)));
  EXPECT_NE(message_of<Error>([&] { quantized(large, "f16"); }).find("which f16 cannot hold"), std::string::npos);
  EXPECT_NE(message_of<Error>([&] { quantized(waves({2, 32}, 1e7), "int4"); }).find("too large for f16"), std::string::npos);
  EXPECT_NE(message_of<Error>([] { tensor_type("q8_0"); }).find("expected one of f32, f16, bf16, mxfp8"), std::string::npos);
}

// A block whose largest value is 1 keeps it; a scale rounded to the nearest power of two would clip it to 0.875.
TEST(QuantizeTensor, MxKeepsTheLargest) {
  Array x = waves({1, 32}, 0.5);
  x.values<float>()[3] = 1;
  for (auto rule : {MxRule::Ceil, MxRule::Floor}) EXPECT_EQ(dequantize_array(quantized(x, "mxfp8", rule)).at(3), 1);
  x.values<float>()[3] =
      1.9f;  // OCP's rule has it at 486, beyond 448; where nothing is clipped the step is twice as wide
  EXPECT_EQ(dequantize_array(quantized(x, "mxfp8", MxRule::Floor)).at(3), 1.75);
  EXPECT_EQ(quantized(x, "mxfp8", MxRule::Floor).clipped, 1);
  EXPECT_EQ(dequantize_array(quantized(x, "mxfp8", MxRule::Ceil)).at(3), 1.875);
  EXPECT_EQ(quantized(x, "mxfp8", MxRule::Ceil).clipped, 0);
}

// No scale is NaN: not of a zero block, not of a block that the largest of the tensor leaves nothing of.
TEST(QuantizeTensor, Nvfp4ScalesAreNumbers) {
  Array x(DType::F32, {1, 64});
  x.values<float>()[0] = 3000, x.values<float>()[20] = 1e-5f, x.values<float>()[40] = 2;
  auto q = quantized(x, "nvfp4");
  for (auto code : q.scale.values<std::uint8_t>()) EXPECT_NE(code & 0x7f, 0x7f);
  EXPECT_EQ(q.scale.at(0), 0x7e);
  Array y = dequantize_array(q);
  EXPECT_NEAR(y.at(0), 3000, 1e-3);
  EXPECT_EQ(y.at(20), 0);
  EXPECT_NEAR(y.at(40), 2, 0.1);
  EXPECT_EQ(q.clipped, 0);
}

}  // namespace
}  // namespace rlx
