// Dtypes, promotion and the 16-bit floats.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "rlx/base.h"

namespace rlx {
namespace {

TEST(DType, TextRoundTrips) {
  for (auto d : kAllDTypes) EXPECT_EQ(dtype_from_string(to_string(d)), d);
  EXPECT_EQ(size_of(DType::Bool), 1u);
  EXPECT_EQ(size_of(DType::BF16), 2u);
  EXPECT_EQ(size_of(DType::C64), 8u);
  EXPECT_THROW(dtype_from_string("f8"), UserError);
  EXPECT_THROW(size_of(DType::Any), InternalError);
}

TEST(DType, PromotesAsJaxDoes) {
  using enum DType;
  EXPECT_EQ(promote(Bool, I8), I8);
  EXPECT_EQ(promote(U8, I8), I16);
  EXPECT_EQ(promote(U32, I32), I64);
  EXPECT_EQ(promote(U64, I8), F32);
  EXPECT_EQ(promote(I64, F16), F16);
  EXPECT_EQ(promote(BF16, F16), F32);
  EXPECT_EQ(promote(F32, F64), F64);
  EXPECT_EQ(promote(F32, C64), C64);
  EXPECT_THROW(promote(C64, F64), UserError);
  EXPECT_EQ(promote(Any, F32), Any);
  for (auto a : kAllDTypes) EXPECT_EQ(promote(a, a), a);
}

TEST(DType, PromotionIsTheOneTheDocumentShows) {
  std::ifstream doc(RLX_TESTS_DIR "/../docs/dtypes.md");
  ASSERT_TRUE(doc);
  std::vector<std::string> columns;
  int cells = 0;
  for (std::string line; std::getline(doc, line);) {
    std::istringstream in(line);
    std::vector<std::string> row;
    for (std::string cell; std::getline(in, cell, '|');) {
      std::erase(cell, ' ');
      row.push_back(cell);
    }
    if (row.size() != kAllDTypes.size() + 2 || row[1] == "---") continue;
    if (row[1].empty()) {
      columns = row;
      continue;
    }
    for (std::size_t i = 2; i < row.size(); ++i, ++cells) {
      auto a = dtype_from_string(row[1]), b = dtype_from_string(columns[i]);
      if (row[i] == "-") {
        EXPECT_THROW(promote(a, b), UserError);
      } else {
        EXPECT_EQ(to_string(promote(a, b)), row[i]) << row[1] << " with " << columns[i];
      }
    }
  }
  EXPECT_EQ(cells, int(kAllDTypes.size() * kAllDTypes.size()));
}

// A 16-bit float's value from the definition of its fields.
double value_of(std::uint16_t bits, int mantissa_bits, int bias) {
  int exponent = (bits & 0x7fff) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  int top = (0x7fff >> mantissa_bits);
  double v = exponent == top ? (mantissa ? NAN : INFINITY)
             : exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                             : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  return bits & 0x8000 ? -v : v;
}

// Every pattern decodes to its definition and comes back; the values between two neighbours go to the nearer, ties to
// even.
template <class T>
void check_every_pattern(int mantissa_bits, int bias) {
  std::uint16_t infinity = std::uint16_t(0x7fff >> mantissa_bits << mantissa_bits);
  auto both = [](double v) {
    EXPECT_EQ(T(v).bits, T(float(v)).bits) << v;
    return T(v).bits;
  };
  for (int i = 0; i < 65536; ++i) {
    T t;
    t.bits = std::uint16_t(i);
    double v = value_of(t.bits, mantissa_bits, bias);
    if (std::isnan(v)) {
      ASSERT_TRUE(std::isnan(float(t)));
      ASSERT_TRUE(std::isnan(float(T(float(t))))) << i;
      ASSERT_TRUE(std::isnan(float(T(double(float(t)))))) << i;
      continue;
    }
    ASSERT_EQ(double(float(t)), v) << i;
    ASSERT_EQ(std::signbit(float(t)), i >= 0x8000) << i;
    ASSERT_EQ(both(v), i);
    if (i >= infinity) continue;
    // The neighbour of the largest number is where one more exponent would be.
    double next = i + 1 == infinity ? std::ldexp(1.0, (infinity >> mantissa_bits) - bias)
                                    : value_of(std::uint16_t(i + 1), mantissa_bits, bias);
    double middle = (v + next) / 2;
    for (double sign : {1.0, -1.0}) {
      int s = sign < 0 ? 0x8000 : 0, even = i & 1 ? i + 1 : i;
      ASSERT_EQ(both(sign * middle), s | even) << i;
      ASSERT_EQ(T(sign * std::nextafter(middle, 0.0)).bits, s | i) << i;
      ASSERT_EQ(T(sign * std::nextafter(middle, 1e300)).bits, s | (i + 1)) << i;
      ASSERT_EQ(T(std::nextafter(float(sign * middle), 0.0f)).bits, s | i) << i;
      ASSERT_EQ(T(float(std::nextafter(float(sign * middle), float(sign * INFINITY)))).bits, s | (i + 1)) << i;
    }
  }
}
TEST(F16, EveryPatternAndEveryMidpoint) { check_every_pattern<f16>(10, 15); }
TEST(BF16, EveryPatternAndEveryMidpoint) { check_every_pattern<bf16>(7, 127); }

// numpy.float16 and, where one rounding decides, the correctly rounded bfloat16.
TEST(F16, RoundsADoubleOnce) {
  const double x[] = {INFINITY, -INFINITY, 3e9,     -1.5,   2.7,  2049.0,      65519.99,
                      65520,    1e-8,      0x1p-25, 3.1e-8, -0.0, 1 + 0x1p-11, 1 + 0x1p-11 + 0x1p-40};
  const int want[] = {0x7c00, 0xfc00, 0x7c00, 0xbe00, 0x4166, 0x6800, 0x7bff, 0x7c00, 0, 0, 1, 0x8000, 0x3c00, 0x3c01};
  for (std::size_t i = 0; i < std::size(x); ++i) EXPECT_EQ(f16(x[i]).bits, want[i]) << x[i];
  EXPECT_EQ(bf16(1 + 0x1p-8).bits, 0x3f80);
  EXPECT_EQ(bf16(1 + 0x1p-8 + 0x1p-40).bits, 0x3f81);  // through f32 it would be a tie, and 0x3f80
  EXPECT_EQ(bf16(1e300).bits, 0x7f80);
  EXPECT_EQ(bf16(-1e-300).bits, 0x8000);
}

}  // namespace
}  // namespace rlx
