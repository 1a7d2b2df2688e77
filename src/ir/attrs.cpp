// How attribute fields are printed and read back, exactly.
#include "rlx/attrs.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "ir/graph_data.h"

namespace rlx {
namespace {

std::string_view trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

// The parts of `a, [b, c], "d, e"` between the commas of its top level.
std::vector<std::string_view> split_commas(std::string_view text) {
  std::vector<std::string_view> out;
  int depth = 0;
  bool in_string = false;
  std::size_t start = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      else if (c == '"') in_string = false;
    } else if (c == '"') in_string = true;
    else if (c == '[' || c == '(' || c == '{') ++depth;
    else if (c == ']' || c == ')' || c == '}') --depth;
    else if (c == ',' && depth == 0) {
      out.push_back(trim(text.substr(start, i - start)));
      start = i + 1;
    }
  }
  if (!trim(text.substr(std::min(start, text.size()))).empty() || !out.empty()) out.push_back(trim(text.substr(std::min(start, text.size()))));
  return out;
}

std::string_view inside(std::string_view text, char open, char close) {
  text = trim(text);
  if (text.size() < 2 || text.front() != open || text.back() != close)
    throw UserError(fmt::format("expected {}…{}, got '{}'", open, close, text));
  return text.substr(1, text.size() - 2);
}

template <class T> void parse_number(std::string_view text, T& value) {
  text = trim(text);
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) throw UserError(fmt::format("'{}' is not a number of its field", text));
}

template <class List> std::string list_text(const List& list) {
  std::string out = "[";
  for (auto& v : list) out += (out.size() > 1 ? ", " : "") + field_text(v);
  return out + "]";
}
template <class List> void parse_list(std::string_view text, List& list) {
  list.clear();
  for (auto part : split_commas(inside(text, '[', ']'))) parse_field(part, list.emplace_back());
}

// A NaN by its bits, since there are many; everything else in the fewest digits that read back to it.
std::string double_text(double v) {
  if (std::isnan(v)) {
    auto bits = std::bit_cast<std::uint64_t>(v);
    return bits == 0x7ff8000000000000u ? "nan" : fmt::format("nan:{:x}", bits);
  }
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  return fmt::format("{}", v);
}

constexpr char kHex[] = "0123456789abcdef";

}  // namespace

std::string field_text(double v) { return double_text(v); }
std::string field_text(std::int64_t v) { return fmt::format("{}", v); }
std::string field_text(std::uint64_t v) { return fmt::format("{}", v); }
std::string field_text(int v) { return fmt::format("{}", v); }
std::string field_text(bool v) { return v ? "true" : "false"; }
std::string field_text(DType v) { return std::string(to_string(v)); }
std::string field_text(const std::string& v) { return quoted(v); }
std::string field_text(const Dim& v) { return v.text(); }
std::string field_text(const Shape& v) { return list_text(v); }
std::string field_text(const Extents& v) { return list_text(v); }
std::string field_text(const Axes& v) { return list_text(v); }
std::string field_text(const Type& v) { return to_string(v); }
// The type, then the bytes in hex: exact for every dtype and every NaN. A small array's values follow for the reader.
std::string field_text(const Array& v) {
  std::string out = to_string(v.type()) + " 0x";
  out.reserve(out.size() + 2 * v.byte_size());
  for (std::size_t i = 0; i < v.byte_size(); ++i) {
    auto byte = std::to_integer<unsigned>(v.bytes()[i]);
    out += kHex[byte >> 4], out += kHex[byte & 15];
  }
  if (v.size() > 4 || v.dtype() == DType::C64) return out;
  out += " (";
  for (std::int64_t i = 0; i < v.size(); ++i) out += (i ? ", " : "") + double_text(v.at(i));
  return out + ")";
}

void parse_field(std::string_view text, double& v) {
  text = trim(text);
  if (text == "nan") v = std::bit_cast<double>(std::uint64_t(0x7ff8000000000000u));
  else if (text.starts_with("nan:")) {
    std::uint64_t bits = 0;
    auto hex = text.substr(4);
    auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), bits, 16);
    v = std::bit_cast<double>(bits);
    if (error != std::errc() || end != hex.data() + hex.size() || !std::isnan(v)) throw UserError(fmt::format("'{}' is not a number", text));
  } else parse_number(text, v);
}
void parse_field(std::string_view text, std::int64_t& v) { parse_number(text, v); }
void parse_field(std::string_view text, std::uint64_t& v) { parse_number(text, v); }
void parse_field(std::string_view text, int& v) { parse_number(text, v); }
void parse_field(std::string_view text, bool& v) {
  if (text != "true" && text != "false") throw UserError(fmt::format("'{}' is neither true nor false", text));
  v = text == "true";
}
void parse_field(std::string_view text, DType& v) { v = trim(text) == "any" ? DType::Any : dtype_from_string(trim(text)); }
void parse_field(std::string_view text, std::string& v) {
  auto body = inside(text, '"', '"');
  v.clear();
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '\\') {
      v += body[i];
    } else if (++i < body.size() && body[i] == 'n') {
      v += '\n';
    } else if (i < body.size() && (body[i] == '"' || body[i] == '\\')) {
      v += body[i];
    } else {
      throw UserError(fmt::format("bad escape in {}", text));
    }
  }
}
void parse_field(std::string_view text, Dim& v) { v = Dim::parse(text); }
void parse_field(std::string_view text, Shape& v) { parse_list(text, v); }
void parse_field(std::string_view text, Extents& v) { parse_list(text, v); }
void parse_field(std::string_view text, Axes& v) { parse_list(text, v); }
void parse_field(std::string_view text, Type& v) { v = type_from_string(trim(text)); }
void parse_field(std::string_view text, Array& v) {
  std::size_t x = text.find(" 0x");
  if (x == std::string_view::npos) throw UserError("an array needs a type and its bytes as 0x…");
  Type type = type_from_string(trim(text.substr(0, x)));
  std::string_view hex = text.substr(x + 3);
  hex = hex.substr(0, hex.find(' '));
  Extents shape = to_extents(type.shape);
  if (std::uint64_t(count(shape)) != hex.size() / 2 / size_of(type.dtype) || hex.size() % (2 * size_of(type.dtype)) != 0)
    throw UserError(fmt::format("{} does not have {} hex digits", to_string(type), hex.size()));
  v = Array(type.dtype, shape);
  auto digit = [&](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    throw UserError(fmt::format("'{}' is not a hex digit", c));
  };
  for (std::size_t i = 0; i < v.byte_size(); ++i) v.bytes()[i] = std::byte(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '\n') out += "\\n";
    else if (c == '"' || c == '\\') out += '\\', out += c;
    else out += c;
  }
  return out + "\"";
}

namespace detail {

void append_field(std::string& out, const char* name, const std::string& value) {
  out += (out.empty() ? "" : ", ") + std::string(name) + " = " + value;
}
std::vector<std::pair<std::string, std::string>> split_fields(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> out;
  for (auto part : split_commas(text)) {
    auto eq = part.find(" = ");
    if (eq == std::string_view::npos) throw UserError(fmt::format("expected `name = value`, got '{}'", part));
    out.emplace_back(trim(part.substr(0, eq)), trim(part.substr(eq + 3)));
  }
  return out;
}
void unknown_field(const std::string& name) { throw UserError("there is no attribute '" + name + "'"); }

}  // namespace detail

}  // namespace rlx
