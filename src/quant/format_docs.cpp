#include "quant/format_docs.h"

#include <fmt/format.h>

#include <cmath>

#include "quant/block_format.h"
#include "quant/format_picture.h"

namespace rlx {
namespace {

// 0.0625, 448, and where that is long a multiple of a power of two.
std::string number_text(double v) {
  if (v == 0) return "-";
  if (std::fabs(v) < 1e6 && std::fabs(v) > 0.01) return fmt::format("{}", v);
  int e = std::ilogb(v);
  double m = std::ldexp(v, -e);
  return m == 1 ? fmt::format("2^{}", e) : fmt::format("{}·2^{}", m, e);
}

std::string bits_text(double bits) { return fmt::format("{:.4g}", bits); }

// "7d-7f fd-ff" of codes in rising order.
std::string code_ranges(const std::vector<int>& codes) {
  std::string out;
  for (std::size_t i = 0; i < codes.size();) {
    std::size_t last = i;
    while (last + 1 < codes.size() && codes[last + 1] == codes[last] + 1) ++last;
    out += fmt::format("{}{:02x}", out.empty() ? "" : " ", codes[i]);
    if (last > i) out += fmt::format("-{:02x}", codes[last]);
    i = last + 1;
  }
  return out;
}

bool is_custom(Format f) { return int(f) >= int(Format::FirstCustom); }

std::vector<std::string> float_row(Format format) {
  auto& f = info(format);
  std::string layout = !f.is_float() ? "integer"
                       : f.specials == FormatInfo::Specials::Scale
                           ? "exponent"
                           : fmt::format("1.{}.{}", f.exponent_bits, f.mantissa_bits);
  return {std::string(f.name),
          fmt::to_string(f.bits),
          layout,
          f.is_float() ? fmt::to_string(f.bias) : "-",
          fmt::format("{} ({:02x})", number_text(f.max), f.max_code),
          number_text(f.is_float() ? f.min_normal : 0),
          number_text(f.min_subnormal),
          format_specials(format)};
}
FormatTable float_table(std::string title, bool custom) {
  FormatTable out{std::move(title),
                  {"format", "bits", "s.e.m", "bias", "max (code)", "min normal", "min subnormal", "special codes"},
                  {}};
  for (int i = 0; i < kFormatCount; ++i)
    if (is_custom(Format(i)) == custom) out.rows.push_back(float_row(Format(i)));
  return out;
}

struct Layout {
  const char *name, *format, *block, *scale, *rule;
  double bits;
};
constexpr Layout kLayouts[] = {
    {"per_tensor", "any float", "all", "f32", "max|x| / max; 1 where that is 0", 8},
    {"mxfp8", "f8e4m3, f8e5m2", "32", "e8m0", "mx", 8.25},
    {"mxfp6", "f6e2m3, f6e3m2", "32", "e8m0", "mx", 6.25},
    {"mxfp4", "f4e2m1", "32", "e8m0", "mx", 4.25},
    {"nvfp4", "f4e2m1", "16", "f8e4m3, one f32 for all",
     "tensor: max|x| / 2688; block: max|x| / 6 / tensor scale, within 2^-9 and 448", 4.5},
};
FormatTable layout_table() {
  FormatTable out{"Scaled layouts", {"layout", "codes", "block", "scale", "scale rule", "bits"}, {}};
  for (auto& l : kLayouts) out.rows.push_back({l.name, l.format, l.block, l.scale, l.rule, bits_text(l.bits)});
  return out;
}

FormatTable block_table() {
  FormatTable out{
      "GGUF types", {"type", "id", "block", "bytes", "bits", "element", "value", "scale rule", "in", "out"}, {}};
  for (auto& f : block_formats()) {
    auto levels = block_levels(f.name);
    out.rows.push_back({f.name, fmt::to_string(f.id), fmt::to_string(f.elements), fmt::to_string(f.bytes),
                        bits_text(f.bits_per_element()),
                        levels                  ? levels->element
                        : f.dtype != DType::Any ? "itself"
                                                : "-",
                        levels ? levels->value : "-", levels ? levels->rule : "-",
                        f.decode || f.dtype != DType::Any ? "yes" : "no",
                        f.can_encode() || f.dtype != DType::Any ? "yes" : "no"});
  }
  return out;
}

std::string escape_cell(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}
std::string markdown_row(const std::vector<std::string>& cells) {
  std::string out = "|";
  for (auto& c : cells) out += " " + escape_cell(c) + " |";
  return out + "\n";
}
std::string markdown_table(const FormatTable& t) {
  std::string out = markdown_row(t.headers);
  out += "|";
  for (std::size_t i = 0; i < t.headers.size(); ++i) out += "---|";
  out += "\n";
  for (auto& row : t.rows) out += markdown_row(row);
  return out;
}
std::string picture_link(std::string_view name) { return fmt::format("![values of {0}](formats/{0}.svg)\n\n", name); }

constexpr const char* kIntroduction = R"(# Number formats

Written from the tables in `base/format.cpp` and `quant/block_format.cpp` by `rlx_table --formats docs`; a test checks that
it is current. `rlx formats` prints the tables, `rlx formats --check` tries every bf16 and f16 number and every midpoint
between neighbouring codes ± 1 ulp on every format, saturating and not, against the nearest of all codes.

A format has at most 8 bits and is kept as u8 codes; it is no dtype. `to_format` and `from_format` convert.

- Rounding is to the nearest value, ties to the even code, into subnormals too. Overflow is judged after rounding: with
  `saturate` what is too large, infinity included, becomes the largest value of its sign; without it infinity, or else NaN,
  where the format has them.
- NaN becomes NaN; +max in a float format that has none, 0 in an integer.
- A custom float `e<E>m<M>` has a sign, E exponent and M mantissa bits, bias 2^(E-1) - 1, and all its codes are finite.
- `e8m0` holds powers of two only. It has no sign and no zero: 0 becomes 2^-127, a negative number NaN.

)";
constexpr const char* kLayoutText = R"(
A layout puts scales beside the codes: value = code · scale. Blocks lie along the last axis; the last of a row may be short.
The mx rule is `ceil`, 2^⌈log2(max|x| / max)⌉, with which nothing saturates, or `floor` (OCP's), 2^(⌊log2 max|x|⌋ - emax),
emax being the exponent of the format's largest value. A NaN or an infinity makes the scale ff, and the block NaN.

)";
constexpr const char* kBlockText = R"(
d and m are f16, s and n integers of a sub-block, q the element. Encoding gives the bytes of the `gguf` package's quantisers;
those differ only where theirs are not defined, which is for blocks so small that 1/d overflows (all elements become 0 either
way) and below 2^-125 for MXFP4. A NaN or an infinity makes its block NaN. NVFP4 has a tensor scale: an f32 in the tensor
`a.scale` beside `a.weight`; blocks of which nothing is left next to a large one are counted by `rlx quantize`.

)";

}  // namespace

std::string format_specials(Format format) {
  std::vector<int> nans, infinities;
  bool negative_zero = false;
  auto& f = info(format);
  for (int code = 0; code < 1 << f.bits; ++code) {
    double v = decode(format, std::uint8_t(code));
    if (std::isnan(v)) nans.push_back(code);
    if (std::isinf(v)) infinities.push_back(code);
    negative_zero = negative_zero || (v == 0 && std::signbit(v));
  }
  std::vector<std::string> parts;
  if (!infinities.empty()) parts.push_back("Inf " + code_ranges(infinities));
  if (!nans.empty()) parts.push_back("NaN " + code_ranges(nans));
  if (f.specials == FormatInfo::Specials::Scale)
    parts.push_back("no zero");
  else if (f.is_float() && !negative_zero)
    parts.push_back("no -0");
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", "));
}

std::vector<FormatTable> format_tables() {
  return {float_table("Formats", false), float_table("Custom floats", true), layout_table(), block_table()};
}

std::string formats_markdown() {
  auto tables = format_tables();
  std::string out = kIntroduction;
  out +=
      "Pictures: a tick a value on an axis that is logarithmic on both sides of zero; blue normal, orange subnormal.\n";
  for (std::size_t i = 0; i < tables.size(); ++i) {
    out += fmt::format("\n## {}\n", tables[i].title);
    out += i == 2 ? kLayoutText : i == 3 ? kBlockText : "\n";
    out += markdown_table(tables[i]);
    if (i > 1 && i < 3) continue;
    out += "\n";
    for (auto& row : tables[i].rows)
      if (i < 3 || block_levels(row[0])) out += picture_link(row[0]);
    out.pop_back();
  }
  return out;
}

std::map<std::string, std::string> format_pictures() {
  std::map<std::string, std::string> out;
  for (int i = 0; i < kFormatCount; ++i) out[std::string(to_string(Format(i))) + ".svg"] = format_picture(Format(i));
  for (auto& f : block_formats())
    if (auto levels = block_levels(f.name)) out[std::string(f.name) + ".svg"] = levels_picture(f.name, *levels);
  return out;
}

}  // namespace rlx
