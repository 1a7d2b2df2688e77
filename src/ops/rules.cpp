// Checks and small nodes that the rules of several families use.
#include "ops/rules.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

namespace rlx {

void check_sizes(const Shape& shape) {
  for (auto& d : shape)
    if (is_negative(d)) throw UserError(fmt::format("got the shape {}, expected sizes of 0 or more", to_string(shape)));
}

void check_entries(std::string_view what, std::size_t got, std::size_t rank) {
  if (got != rank) throw UserError(fmt::format("`{}` has {} entries, expected {}, one an axis", what, got, rank));
}

void check_value(double value, DType dtype) {
  if (dtype == DType::C64 || is_float(dtype)) return;
  bool least = std::isinf(value);  // stands for the least or the greatest integer
  if (!(least && is_int(dtype)) && Array::scalar(value, dtype).at(0) != value)
    throw UserError(fmt::format("{} is not a value of {}", value, to_string(dtype)));
}

Axes all_axes(int rank) {
  Axes out(static_cast<std::size_t>(rank));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

Axes normalize_perm(const Axes& perm, int rank) {
  check_entries("perm", perm.size(), std::size_t(rank));
  normalize_axes(perm, rank);  // none outside, none twice
  Axes out;
  for (int axis : perm) out.push_back(normalize_axis(axis, rank));
  return out;
}

}  // namespace rlx
