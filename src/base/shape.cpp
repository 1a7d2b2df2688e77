// Shapes, extents, axes and types: counting, broadcasting, text.
#include <fmt/format.h>

#include <algorithm>

#include "rlx/array.h"

namespace rlx {

bool is_static(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](auto& d) { return d.is_number(); });
}

Dim count(const Shape& shape) {
  Dim product = 1;
  for (auto& d : shape)
    if (d == Dim(0)) return 0;
  for (auto& d : shape) product = product * d;
  return product;
}

std::int64_t count(const Extents& extents) {
  std::int64_t product = 1;
  bool is_empty = false;
  for (auto n : extents) {
    if (n < 0) throw UserError(fmt::format("shape {}: a size is negative", to_string(extents)));
    is_empty |= n == 0;
  }
  if (is_empty) return 0;
  for (auto n : extents)
    if (__builtin_mul_overflow(product, n, &product))
      throw UserError(fmt::format("shape {}: the number of elements does not fit 63 bits", to_string(extents)));
  return product;
}

Shape to_shape(const Extents& extents) { return Shape(extents.begin(), extents.end()); }

Extents to_extents(const Shape& shape) {
  Extents out;
  for (auto& d : shape) {
    if (!d.is_number())
      throw UserError(fmt::format("shape {}: '{}' is symbolic, expected a number", to_string(shape), d.text()));
    out.push_back(d.number());
  }
  return out;
}

Extents evaluate(const Shape& shape, const Bindings& symbols) {
  Extents out;
  for (auto& d : shape) {
    out.push_back(d.evaluate(symbols));
    if (out.back() < 0)
      throw UserError(fmt::format("shape {}: '{}' is {}, expected 0 or more", to_string(shape), d.text(), out.back()));
  }
  return out;
}

std::string to_string(const Shape& shape) {
  std::vector<std::string> texts;
  for (auto& d : shape) texts.push_back(d.text());
  return fmt::format("[{}]", fmt::join(texts, ","));
}

std::string to_string(const Extents& extents) { return fmt::format("[{}]", fmt::join(extents, ",")); }

Shape broadcast(const Shape& a, const Shape& b) {
  Shape out(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    Dim x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != Dim(1) && y != Dim(1))
      throw UserError(fmt::format("shapes do not broadcast: got {} and {}, where {} meets {} (axis {} of the result)",
                                  to_string(a), to_string(b), x.text(), y.text(), out.size() - 1 - i));
    out[out.size() - 1 - i] = x == Dim(1) ? y : x;
  }
  return out;
}

int normalize_axis(int axis, int rank) {
  if (axis < -rank || axis >= rank)
    throw UserError(rank == 0 ? fmt::format("axis {}: a scalar has no axes", axis)
                              : fmt::format("axis {}: expected one in [{}, {})", axis, -rank, rank));
  return axis < 0 ? axis + rank : axis;
}

Axes normalize_axes(const Axes& axes, int rank) {
  Axes out;
  for (auto a : axes) out.push_back(normalize_axis(a, rank));
  std::sort(out.begin(), out.end());
  auto twice = std::adjacent_find(out.begin(), out.end());
  if (twice != out.end()) throw UserError(fmt::format("axis {} stands twice in the list of axes", *twice));
  return out;
}

std::string to_string(const Type& type) { return std::string(to_string(type.dtype)) + to_string(type.shape); }

Type type_from_string(std::string_view text) {
  auto open = text.find('[');
  if (open == text.npos || text.back() != ']')
    throw UserError(
        fmt::format("type: got '{}', expected a dtype and a shape such as f32[2,seq]", text.substr(0, 200)));
  Type type;
  auto name = text.substr(0, open);
  if (name != "any") type.dtype = dtype_from_string(name);
  auto rest = text.substr(open + 1, text.size() - open - 2);
  if (rest.find_first_not_of(' ') == rest.npos) return type;
  for (std::size_t i = 0, start = 0, depth = 0; i <= rest.size(); ++i) {
    if (i < rest.size()) {
      if (rest[i] == '(') ++depth;
      if (rest[i] == ')' && depth) --depth;
      if (rest[i] != ',' || depth) continue;
    }
    auto d = Dim::parse(rest.substr(start, i - start));
    if (d.is_number() && d.number() < 0)
      throw UserError(fmt::format("type '{}': a size is {}, expected 0 or more", text.substr(0, 200), d.number()));
    type.shape.push_back(d);
    start = i + 1;
  }
  return type;
}

}  // namespace rlx
