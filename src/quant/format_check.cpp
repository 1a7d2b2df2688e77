#include "quant/format_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/parallel.h"

namespace rlx {
namespace {

using Specials = FormatInfo::Specials;

// Stands for what is not a code: too large, or NaN.
constexpr int kOverflow = 256, kNan = 257;

struct Value {
  double value;
  int code;  // where a format goes on, the value after the largest has the next code and `overflow`
  bool overflow = false;
};

// All values of a format by the formula of its row.
class Values {
 public:
  explicit Values(const FormatInfo& f) : f_(f) {
    f.is_float() ? add_floats() : add_integers();
    std::sort(all_.begin(), all_.end(), [](auto& a, auto& b) { return a.value < b.value; });
  }

  // The value that a code has, NaN where it is none.
  double of_code(int code) const {
    for (auto& v : all_)
      if (v.code == code && !v.overflow) return v.value;
    return infinite(code) ? (code & 0x80 ? -INFINITY : INFINITY) : NAN;
  }
  // The nearest, ties to the even code; zeros are told apart by the sign.
  int nearest(double x) const {
    x = std::clamp(x, -4 * f_.max, 4 * f_.max);  // so that distances are exact
    const Value* best = &all_[0];
    double least = std::fabs(best->value - x);
    for (auto& v : all_) {
      double d = std::fabs(v.value - x);
      if (d > least) continue;
      if (d < least || is_better(v, *best, x)) best = &v, least = d;
    }
    return best->overflow ? kOverflow : best->code;
  }
  std::vector<float> midpoints() const {
    std::vector<float> out;
    for (std::size_t i = 1; i < all_.size(); ++i) {
      double middle = (all_[i - 1].value + all_[i].value) / 2;
      if (all_[i - 1].value == all_[i].value) continue;
      if (double(float(middle)) != middle) throw InternalError("the middle of two codes is no f32 number");
      for (float v : {float(middle), std::nextafter(float(middle), -INFINITY), std::nextafter(float(middle), INFINITY)})
        out.push_back(v);
    }
    return out;
  }

 private:
  bool infinite(int code) const { return f_.specials == Specials::Ieee && (code & 0x7f) == f_.max_code + 1; }
  static bool is_better(const Value& a, const Value& b, double x) {
    if (a.value == b.value) return std::signbit(a.value) == std::signbit(x);
    return a.code % 2 == 0;
  }
  double magnitude(int code) const {
    int m = f_.mantissa_bits, field = code >> m, fraction = code & ((1 << m) - 1);
    if (f_.specials == Specials::Scale) return std::ldexp(1.0, code - f_.bias);
    return field == 0 ? std::ldexp(double(fraction), 1 - f_.bias - m)
                      : std::ldexp(double(fraction | 1 << m), field - f_.bias - m);
  }
  void add_floats() {
    bool is_signed = f_.specials != Specials::Scale;
    int sign = 1 << (f_.bits - 1);
    for (int code = 0; code <= f_.max_code + 1; ++code) {
      bool overflow = code > f_.max_code;
      all_.push_back({magnitude(code), code, overflow});
      if (is_signed && !(f_.specials == Specials::Fnuz && code == 0))
        all_.push_back({-magnitude(code), code | sign, overflow});
    }
  }
  void add_integers() {
    int half = f_.bits == 2 ? 1 : 1 << (f_.bits - 1), most = f_.bits == 2 ? 1 : half - 1;  // two bits hold -1, 0, 1
    for (int v = -half; v <= most; ++v) all_.push_back({double(v), v & ((1 << f_.bits) - 1)});
  }

  const FormatInfo& f_;
  std::vector<Value> all_;
};

// What encoding should give: a code or kNan.
int expected_code(const FormatInfo& f, const Values& values, double x, bool saturate) {
  if (std::isnan(x)) return f.has_nan() ? kNan : f.is_float() ? f.max_code : 0;
  if (f.specials == Specials::Scale && x < 0) return kNan;
  if (!f.is_float()) return values.nearest(x);
  int code = std::isinf(x) ? kOverflow : values.nearest(x);
  if (code != kOverflow) return code;
  if (!saturate && f.has_nan() && f.specials != Specials::Ieee) return kNan;
  int sign = std::signbit(x) ? 1 << (f.bits - 1) : 0;
  return sign | (f.max_code + (!saturate && f.specials == Specials::Ieee));
}

bool is_same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

FormatCheck check_format(Format format) {
  FormatCheck out;
  out.format = format;
  const FormatInfo& f = info(format);
  Values values(f);
  auto note = [&](std::int64_t& count, const std::string& what) {
    if (out.differences() == 0) out.first = what;
    ++count;
  };
  for (int code = 0; code < 1 << f.bits; ++code) {
    if (f.bits == 2 && code == 2) continue;  // not a ternary value
    ++out.codes;
    if (double got = decode(format, std::uint8_t(code)), want = values.of_code(code); !is_same(got, want))
      note(out.decode_differences, fmt::format("code {:02x} is {}, expected {}", code, got, want));
  }
  auto check = [&](double x) {
    for (bool saturate : {true, false}) {
      int got = encode(format, x, saturate), want = expected_code(f, values, x, saturate);
      if (got == want || (want == kNan && std::isnan(decode(format, std::uint8_t(got))))) continue;
      note(saturate ? out.saturating_differences : out.other_differences,
           fmt::format("{} is encoded as {:02x}{}, expected {}", x, got, saturate ? "" : " without saturation",
                       want == kNan ? "a NaN" : fmt::format("{:02x}", want)));
    }
  };
  for (int bits = 0; bits < 65536; ++bits) {
    f16 half;
    bf16 brain;
    half.bits = brain.bits = std::uint16_t(bits);
    check(float(half)), check(float(brain));
    out.patterns += 2;
  }
  for (float x : values.midpoints()) {
    check(x);
    ++out.midpoints;
  }
  return out;
}

}  // namespace

std::vector<FormatCheck> check_formats() {
  std::vector<FormatCheck> out(static_cast<std::size_t>(kFormatCount));
  parallel_for(kFormatCount, [&](std::int64_t i) { out[std::size_t(i)] = check_format(Format(i)); });
  return out;
}

}  // namespace rlx
