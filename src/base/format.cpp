// Number formats of at most 8 bits: the table, and the one definition of encoding and decoding.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "rlx/base.h"

namespace rlx {
namespace {

using Specials = FormatInfo::Specials;

constexpr double two_to(int e) {
  double v = 1;
  for (; e > 0; --e) v *= 2;
  for (; e < 0; ++e) v /= 2;
  return v;
}

// The value of a float's code without its sign.
constexpr double magnitude(const FormatInfo& f, int code) {
  if (f.specials == Specials::Scale) return two_to(code - f.bias);
  int field = code >> f.mantissa_bits, mantissa = code & ((1 << f.mantissa_bits) - 1);
  int implied = field ? 1 << f.mantissa_bits : 0, exponent = std::max(field, 1) - f.bias;
  return double(implied + mantissa) * two_to(exponent - f.mantissa_bits);
}

constexpr FormatInfo float_row(std::string_view name, int exponent_bits, int mantissa_bits, int bias,
                               Specials specials) {
  FormatInfo f{name, 1 + exponent_bits + mantissa_bits, exponent_bits, mantissa_bits, bias, specials};
  int all_ones = (1 << (exponent_bits + mantissa_bits)) - 1;
  f.max_code = specials == Specials::AllOnes ? all_ones - 1
               : specials == Specials::Ieee  ? all_ones - (1 << mantissa_bits)
                                             : all_ones;
  f.max = magnitude(f, f.max_code);
  f.min_normal = two_to(1 - bias);
  f.min_subnormal = mantissa_bits ? two_to(1 - bias - mantissa_bits) : 0;
  return f;
}
constexpr FormatInfo scale_row(std::string_view name) {
  FormatInfo f{name, 8, 8, 0, 127, Specials::Scale, 254};
  f.max = two_to(127), f.min_normal = two_to(-127);
  return f;
}
constexpr FormatInfo integer_row(std::string_view name, int bits, int max) {
  FormatInfo f{name, bits};
  f.max_code = max, f.max = max, f.min_normal = 1;
  return f;
}

constexpr std::string_view kCustomNames[] = {
    "e1m0", "e1m1", "e1m2", "e1m3", "e1m4", "e1m5", "e1m6", "e2m0", "e2m1", "e2m2", "e2m3", "e2m4", "e2m5", "e3m0",
    "e3m1", "e3m2", "e3m3", "e3m4", "e4m0", "e4m1", "e4m2", "e4m3", "e5m0", "e5m1", "e5m2", "e6m0", "e6m1", "e7m0"};

constexpr auto kFormats = [] {
  std::array<FormatInfo, kFormatCount> out{float_row("f8e4m3", 4, 3, 7, Specials::AllOnes),
                                           float_row("f8e5m2", 5, 2, 15, Specials::Ieee),
                                           float_row("f8e4m3fnuz", 4, 3, 8, Specials::Fnuz),
                                           float_row("f8e5m2fnuz", 5, 2, 16, Specials::Fnuz),
                                           float_row("f6e2m3", 2, 3, 1, Specials::None),
                                           float_row("f6e3m2", 3, 2, 3, Specials::None),
                                           float_row("f4e2m1", 2, 1, 1, Specials::None),
                                           scale_row("e8m0"),
                                           integer_row("int8", 8, 127),
                                           integer_row("int4", 4, 7),
                                           integer_row("ternary", 2, 1)};
  std::size_t at = std::size_t(Format::FirstCustom);
  for (int e = 1; e <= 7; ++e)
    for (int m = 0; e + m <= 7; ++m, ++at)
      out[at] =
          float_row(kCustomNames[at - std::size_t(Format::FirstCustom)], e, m, (1 << (e - 1)) - 1, Specials::None);
  return out;
}();

constexpr auto kNames = [] {
  std::array<std::string_view, kFormatCount> out;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = kFormats[i].name;
  return out;
}();

int sign_bit(const FormatInfo& f) { return f.specials == Specials::Scale ? 0 : 1 << (f.bits - 1); }

int nan_code(const FormatInfo& f) {
  switch (f.specials) {
    case Specials::None: break;
    case Specials::AllOnes: return 0x7f;
    case Specials::Ieee: return 0x7e;
    case Specials::Fnuz: return 0x80;
    case Specials::Scale: return 0xff;
  }
  throw InternalError("the format has no NaN");
}

// Whether the code below `rest` (in units of the distance between codes) goes up to the next one.
bool rounds_up(double rest, bool odd, Rounding rounding) {
  switch (rounding) {
    case Rounding::NearestEven: return rest > 0.5 || (rest == 0.5 && odd);
    case Rounding::TowardsZero: return false;
    case Rounding::AwayFromZero: return rest > 0;
  }
  throw InternalError("unknown rounding");
}

// The code of a finite magnitude, as if there were no end of codes; capped at 256.
int encode_magnitude(const FormatInfo& f, double a, Rounding rounding) {
  int least = 1 - f.bias;
  if (f.specials == Specials::Scale) least = -f.bias;
  int exponent = a > 0 ? std::max(std::ilogb(a), least) : least;
  if (exponent - least > 256) return 256;
  double units = std::ldexp(a, f.mantissa_bits - exponent), whole = std::floor(units);
  int code = ((exponent - least) << f.mantissa_bits) + int(whole);
  if (f.specials == Specials::Scale) return std::max(0, code - 1 + rounds_up(units - whole, (code - 1) & 1, rounding));
  return std::min(256, code + rounds_up(units - whole, code & 1, rounding));
}

std::uint8_t encode_integer(const FormatInfo& f, double v, Rounding rounding) {
  double a = std::fabs(v), whole = std::floor(a), least = f.bits == 2 ? 1 : f.max + 1;
  if (v != v) return 0;
  double limit = v < 0 ? least : f.max;
  double n = a >= limit ? limit : whole + rounds_up(a - whole, std::fmod(whole, 2) != 0, rounding);
  return std::uint8_t(int(v < 0 ? -n : n) & ((1 << f.bits) - 1));
}

std::uint8_t overflow_code(const FormatInfo& f, bool saturate) {
  if (!saturate && f.specials == Specials::Ieee) return std::uint8_t(f.max_code + 1);
  return std::uint8_t(saturate || !f.has_nan() ? f.max_code : nan_code(f));
}

}  // namespace

std::span<const std::string_view> enum_names(Format) { return kNames; }
std::span<const std::string_view> enum_names(Rounding) {
  static constexpr std::string_view kRoundings[] = {"nearest_even", "towards_zero", "away_from_zero"};
  return kRoundings;
}
std::string_view to_string(Format format) { return info(format).name; }

Format format_from_string(std::string_view text) {
  auto it = std::ranges::find(kNames, text);
  if (it == kNames.end())
    throw UserError(fmt::format("there is no number format \"{}\"; there are {}", text, fmt::join(kNames, ", ")));
  return Format(it - kNames.begin());
}

Format custom_format(int exponent_bits, int mantissa_bits) {
  if (exponent_bits < 1 || mantissa_bits < 0 || exponent_bits > 7 || mantissa_bits > 6 ||
      exponent_bits + mantissa_bits > 7)
    throw UserError(
        fmt::format("a custom format has 1 or more exponent bits and at most 7 with its mantissa's, got {} and {}",
                    exponent_bits, mantissa_bits));
  return format_from_string(fmt::format("e{}m{}", exponent_bits, mantissa_bits));
}

const FormatInfo& info(Format format) {
  if (int(format) >= kFormatCount) throw InternalError("a format that is not in the table");
  return kFormats[std::size_t(format)];
}

int FormatInfo::max_exponent() const { return std::ilogb(max); }

std::uint8_t encode(Format format, double value, bool saturate, Rounding rounding) {
  const FormatInfo& f = info(format);
  if (!f.is_float()) return encode_integer(f, value, rounding);
  bool nan = std::isnan(value) || (f.specials == Specials::Scale && value < 0);
  if (nan && f.specials == Specials::None) return std::uint8_t(f.max_code);
  int code = nan ? nan_code(f) : std::isinf(value) ? 256 : encode_magnitude(f, std::fabs(value), rounding);
  if (!nan && code > f.max_code) code = overflow_code(f, saturate);
  bool negative = std::signbit(value) && !(f.specials == Specials::Fnuz && code == 0);
  return std::uint8_t(code | (negative ? sign_bit(f) : 0));
}

double decode(Format format, std::uint8_t code) {
  const FormatInfo& f = info(format);
  int bits = code & ((1 << f.bits) - 1);
  if (!f.is_float()) {
    int value = bits & (1 << (f.bits - 1)) ? bits - (1 << f.bits) : bits;
    return value;
  }
  int sign = bits & sign_bit(f), rest = bits & ~sign_bit(f);
  double value = NAN;
  if (f.specials == Specials::Fnuz && bits == 0x80) return value;
  if (rest <= f.max_code)
    value = magnitude(f, rest);
  else if (f.specials == Specials::Ieee && rest == f.max_code + 1)
    value = INFINITY;
  return sign ? -value : value;
}

std::span<const float, 256> decode_table(Format format) {
  static const auto tables = [] {
    std::vector<std::array<float, 256>> out(static_cast<std::size_t>(kFormatCount));
    for (int f = 0; f < kFormatCount; ++f)
      for (int code = 0; code < 256; ++code)
        out[std::size_t(f)][std::size_t(code)] = float(decode(Format(f), std::uint8_t(code)));
    return out;
  }();
  info(format);
  return tables[std::size_t(format)];
}

}  // namespace rlx
