// Number formats against the nearest of all their codes, found by trying each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "rlx/base.h"

namespace rlx {
namespace {

struct Code {
  double value;
  int code;
};

std::vector<Code> finite_codes(Format format) {
  std::vector<Code> out;
  for (int code = 0; code < 1 << info(format).bits; ++code)
    if (double v = decode(format, std::uint8_t(code)); std::isfinite(v)) out.push_back({v, code});
  return out;
}

// The nearest code of the value's sign, ties to the even one.
int nearest(const std::vector<Code>& codes, double x) {
  const Code* best = nullptr;
  bool has_minus_zero = std::ranges::any_of(codes, [](auto& c) { return c.value == 0 && std::signbit(c.value); });
  for (auto& c : codes) {
    bool either_sign = c.value == 0 && !has_minus_zero;
    if (std::signbit(c.value) != std::signbit(x) && !either_sign) continue;
    double d = std::fabs(c.value - x), most = best ? std::fabs(best->value - x) : INFINITY;
    if (!best || d < most || (d == most && c.code % 2 == 0)) best = &c;
  }
  return best->code;
}

TEST(Format, EveryCodeRoundTrips) {
  for (int i = 0; i < kFormatCount; ++i) {
    Format format = Format(i);
    for (auto& [value, code] : finite_codes(format)) {
      if (format == Format::Ternary && code == 2) continue;  // -2 in two bits: no code of it
      EXPECT_EQ(encode(format, value), code) << to_string(format);
      EXPECT_EQ(encode(format, value, false), code) << to_string(format);
    }
  }
}

TEST(Format, MiddlesAndWhatLiesBesideThemRoundToNearestEven) {
  for (int i = 0; i < kFormatCount; ++i) {
    Format format = Format(i);
    if (!info(format).is_float() || format == Format::E8M0) continue;
    auto codes = finite_codes(format);
    std::set<double> values;
    for (auto& c : codes) values.insert(std::fabs(c.value));
    for (auto it = values.begin(); std::next(it) != values.end(); ++it)
      for (double sign : {1.0, -1.0}) {
        double middle = (*it + *std::next(it)) / 2;
        for (double x : {middle, std::nextafter(middle, 0), std::nextafter(middle, INFINITY)}) {
          EXPECT_EQ(encode(format, sign * x), nearest(codes, sign * x)) << to_string(format) << " " << sign * x;
        }
      }
  }
}

TEST(Format, RowsSayWhatTheirCodesAre) {
  for (int i = 0; i < kFormatCount; ++i) {
    const FormatInfo& f = info(Format(i));
    double most = 0;
    for (auto& c : finite_codes(Format(i))) most = std::max(most, c.value);
    EXPECT_EQ(f.max, most) << f.name;
    EXPECT_EQ(format_from_string(f.name), Format(i));
    EXPECT_EQ(f.has_nan(), std::isnan(decode(Format(i), encode(Format(i), NAN)))) << f.name;
  }
}

TEST(Format, CustomFormats) {
  EXPECT_EQ(custom_format(4, 3), format_from_string("e4m3"));
  EXPECT_EQ(info(custom_format(4, 3)).max, 480);  // every code is finite
  EXPECT_EQ(info(custom_format(2, 1)).max, 6);
  EXPECT_EQ(info(custom_format(1, 0)).max, 2);
  for (auto [e, m] : {std::pair{0, 3}, {8, 0}, {4, 4}, {1, 7}, {-1, 1}})
    EXPECT_THROW(custom_format(e, m), UserError) << e << " " << m;
}

TEST(Format, Integers) {
  EXPECT_EQ(encode(Format::Int8, 300), 127);
  EXPECT_EQ(encode(Format::Int8, -300), 0x80);
  EXPECT_EQ(encode(Format::Int8, 2.5), 2);
  EXPECT_EQ(encode(Format::Int8, -3.5), 0xfc);
  EXPECT_EQ(encode(Format::Int8, NAN), 0);
  EXPECT_EQ(encode(Format::Int4, -9), 8);
  EXPECT_EQ(decode(Format::Int4, 8), -8);
  EXPECT_EQ(encode(Format::Ternary, 0.5), 0);
  EXPECT_EQ(decode(Format::Ternary, encode(Format::Ternary, -0.6)), -1);
  EXPECT_EQ(decode(Format::Ternary, encode(Format::Ternary, -7)), -1);
}

TEST(Format, TheScaleFormatRoundsBothWays) {
  EXPECT_EQ(encode(Format::E8M0, 1), 127);
  EXPECT_EQ(encode(Format::E8M0, 1.1, false, Rounding::AwayFromZero), 128);
  EXPECT_EQ(encode(Format::E8M0, 1.9, false, Rounding::TowardsZero), 127);
  EXPECT_EQ(encode(Format::E8M0, 0), 0);
  EXPECT_EQ(decode(Format::E8M0, 0), 0x1p-127);
  EXPECT_EQ(encode(Format::E8M0, INFINITY, false), 255);
  EXPECT_EQ(encode(Format::E8M0, -1), 255);
  EXPECT_TRUE(std::isnan(decode(Format::E8M0, 255)));
}

TEST(Format, UnknownNamesAreErrors) {
  try {
    format_from_string("f8e3m4");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("there is no number format \"f8e3m4\"; there are f8e4m3"), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace rlx
