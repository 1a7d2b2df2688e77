#include "quant/format_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace rlx {
namespace {

constexpr double kWidth = 900, kLeft = 150, kRight = 24, kHeight = 64, kBase = 40, kTick = 18;
constexpr const char* kInk = "#1f2933";
constexpr const char* kNormal = "#2a6fbb";
constexpr const char* kSubnormal = "#d9822b";

// Values in pixels along the axis.
using Axis = std::function<double(double)>;

Axis linear_axis(double low, double high) {
  double room = std::max(high - low, 1.0);
  return [=](double v) { return kLeft + (v - low) / room * (kWidth - kLeft - kRight); };
}
// Logarithmic from `least` on, in both directions where the format is signed; zero lies between, two octaves away.
Axis log_axis(double least, double most, bool is_signed) {
  double span = std::log2(most / least) + 2;
  double width = kWidth - kLeft - kRight, zero = is_signed ? kLeft + width / 2 : kLeft;
  double scale = (is_signed ? width / 2 : width) / span;
  return [=](double v) {
    if (v == 0) return zero;
    double distance = (std::log2(std::fabs(v) / least) + 2) * scale;
    return v < 0 ? zero - distance : zero + distance;
  };
}

std::string ticks(const std::vector<double>& values, const Axis& axis, const char* color) {
  if (values.empty()) return "";
  std::string path;
  for (double v : values) path += fmt::format("M{:.1f} {}v-{}", axis(v), kBase, kTick);
  return fmt::format("<path d=\"{}\" stroke=\"{}\"/>\n", path, color);
}

struct Label {
  double value;
  std::string text;
};
// Those that fit beside the ones before them, the first being the most important.
std::string label_texts(const std::vector<Label>& labels, const Axis& axis) {
  std::vector<std::pair<double, double>> taken;
  std::string out;
  for (auto& [value, text] : labels) {
    double x = axis(value), half = 3.6 * double(text.size()) + 3;
    bool fits =
        std::none_of(taken.begin(), taken.end(), [&](auto& t) { return x - half < t.second && x + half > t.first; });
    if (!fits) continue;
    taken.emplace_back(x - half, x + half);
    double inside = std::min(x, kWidth - half);
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", inside, kBase + 16, text);
  }
  return out;
}

std::string page(std::string_view title, std::string_view below_title, const std::string& body) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" "
      "font-family=\"sans-serif\" "
      "font-size=\"11\" fill=\"{}\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
      "<text x=\"8\" y=\"26\" font-size=\"14\" font-weight=\"bold\">{}</text>\n<text x=\"8\" y=\"43\">{}</text>\n"
      "<path d=\"M{} {}H{}\" stroke=\"#9aa5b1\"/>\n{}</svg>\n",
      kWidth, kHeight, kWidth, kHeight, kInk, title, below_title, kLeft, kBase, kWidth - kRight, body);
}

std::string power_text(double v) {
  if (v == 0 || (std::fabs(v) < 100000 && std::fabs(v) >= 0.125)) return fmt::format("{}", v);
  int e = std::ilogb(v);
  double m = std::ldexp(v, -e);
  return std::fabs(m) == 1 ? fmt::format("{}2^{}", v < 0 ? "-" : "", e) : fmt::format("{:.3g}·2^{}", m, e);
}

// Largest and zero first, then powers of two in ever smaller steps.
std::vector<Label> float_labels(const FormatInfo& f, double least, bool is_signed) {
  std::vector<Label> out = {{f.max, power_text(f.max)}};
  if (f.specials != FormatInfo::Specials::Scale) out.push_back({0, "0"});
  if (is_signed) out.push_back({-f.max, power_text(-f.max)});
  out.push_back({least, power_text(least)});
  if (is_signed) out.push_back({-least, power_text(-least)});
  for (int step : {64, 32, 16, 8, 4, 2, 1})
    for (int e = std::ilogb(least); e <= std::ilogb(f.max); ++e)
      if (e % step == 0) {
        double v = std::ldexp(1.0, e);
        out.push_back({v, power_text(v)});
        if (is_signed) out.push_back({-v, power_text(-v)});
      }
  return out;
}

std::string integer_picture(std::string_view title, std::string_view below, int low, int high) {
  std::vector<double> values;
  std::vector<Label> labels = {{double(high), fmt::to_string(high)}, {double(low), fmt::to_string(low)}, {0, "0"}};
  for (int v = low; v <= high; ++v) values.push_back(v);
  for (int step : {64, 32, 16, 8, 4, 2, 1})
    for (int v = low; v <= high; ++v)
      if (v % step == 0) labels.push_back({double(v), fmt::to_string(v)});
  auto axis = linear_axis(low, high);
  return page(title, below, ticks(values, axis, kNormal) + label_texts(labels, axis));
}

constexpr BlockLevels kLevels[] = {
    {"Q4_0", "4 bits", "d q", "d = the value farthest from 0 / -8", -8, 7},
    {"Q4_1", "4 bits", "d q + m", "m = min, d = (max - min) / 15", 0, 15},
    {"Q5_0", "5 bits", "d q", "d = the value farthest from 0 / -16", -16, 15},
    {"Q5_1", "5 bits", "d q + m", "m = min, d = (max - min) / 31", 0, 31},
    {"Q8_0", "8 bits", "d q", "d = max|x| / 127", -127, 127},
    {"Q2_K", "2 bits", "d s q - m n", "s, n of 4 bits for 16", 0, 3},
    {"Q3_K", "3 bits", "d s q", "s of 6 bits, signed, for 16", -4, 3},
    {"Q4_K", "4 bits", "d s q - m n", "s, n of 6 bits for 32", 0, 15},
    {"Q5_K", "5 bits", "d s q - m n", "s, n of 6 bits for 32", 0, 31},
    {"Q6_K", "6 bits", "d s q", "s of 8 bits, signed, for 16", -32, 31},
    {"TQ1_0", "1.6 bits, base 3", "d q", "d = max|x|", -1, 1},
    {"TQ2_0", "2 bits", "d q", "d = max|x|", -1, 1},
    {"MXFP4", "f4e2m1", "s q", "s in e8m0, 2^(⌊log2 max|x|⌋ - 2)", 0, 0},
    {"NVFP4", "f4e2m1", "s q, times the tensor's", "s in f8e4m3 for 16: nvfp4", 0, 0},
};

}  // namespace

std::string format_picture(Format format) {
  const FormatInfo& f = info(format);
  if (!f.is_float()) {
    int low = f.bits == 2 ? -1 : -int(f.max) - 1;
    return integer_picture(f.name, fmt::format("{} bits, integer", f.bits), low, int(f.max));
  }
  bool is_signed = f.specials != FormatInfo::Specials::Scale;
  std::vector<double> normal, subnormal;
  double least = f.max;
  for (int code = 0; code < 1 << f.bits; ++code) {
    double v = decode(format, std::uint8_t(code));
    if (!std::isfinite(v)) continue;
    (std::fabs(v) >= f.min_normal ? normal : subnormal).push_back(v);
    if (v > 0) least = std::min(least, v);
  }
  auto axis = log_axis(least, f.max, is_signed);
  std::string below = is_signed ? fmt::format("{} bits, 1.{}.{}", f.bits, f.exponent_bits, f.mantissa_bits)
                                : fmt::format("{} bits, exponent", f.bits);
  return page(f.name, below,
              ticks(normal, axis, kNormal) + ticks(subnormal, axis, kSubnormal) +
                  label_texts(float_labels(f, least, is_signed), axis));
}

const BlockLevels* block_levels(std::string_view type) {
  auto it = std::find_if(std::begin(kLevels), std::end(kLevels), [&](auto& l) { return l.type == type; });
  return it == std::end(kLevels) ? nullptr : it;
}

std::string levels_picture(std::string_view type, const BlockLevels& levels) {
  std::string below = levels.element;
  if (levels.low != levels.high) return integer_picture(type, below, levels.low, levels.high);
  std::vector<double> values;
  std::vector<Label> labels;
  for (int code = 0; code < 16; ++code) {
    double v = decode(Format::F4E2M1, std::uint8_t(code));
    values.push_back(v), labels.push_back({v, power_text(v)});
  }
  auto axis = linear_axis(-6, 6);
  return page(type, below, ticks(values, axis, kNormal) + label_texts(labels, axis));
}

}  // namespace rlx
