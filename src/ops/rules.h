// What the rules of several families share: checks of sizes, and the movement of raw elements.
#pragma once
#include <algorithm>
#include <cstring>

#include "ops/define.h"
#include "ops/eval.h"

namespace rlx {

/// Whether it is a number below 0. A symbolic size is checked when it gets its value.
inline bool is_negative(const Dim& d) { return d.is_number() && d.number() < 0; }
/// Whether both are numbers that differ.
inline bool differ(const Dim& a, const Dim& b) { return a.is_number() && b.is_number() && a.number() != b.number(); }
/// Throws UserError where a size is a number below 0.
void check_sizes(const Shape& shape);
/// Throws UserError where `got` entries are not one an axis.
void check_entries(std::string_view what, std::size_t got, std::size_t rank);
/// Throws UserError where the value is none of the dtype's (0.5 or 300 as i8).
void check_value(double value, DType dtype);

/// The node, cast where it has another dtype.
inline Node as_dtype(Node x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }
/// The axes 0, 1, … rank - 1.
Axes all_axes(int rank);
/// The axes of `perm` counted from 0; throws UserError where it is no permutation.
Axes normalize_perm(const Axes& perm, int rank);

/// `shape` seen from one axis: [outer, n, inner].
struct AxisView {
  std::int64_t outer = 1, n = 1, inner = 1;
  AxisView(const Extents& shape, int axis) : n(shape[std::size_t(axis)]) {
    for (int d = 0; d < axis; ++d) outer *= shape[std::size_t(d)];
    for (std::size_t d = std::size_t(axis) + 1; d < shape.size(); ++d) inner *= shape[d];
  }
};

/// The output whose element i is element from(coords of i) of x.
template <class F>
Array move_elements(const Array& x, const Extents& shape, F&& from) {
  Array out(x.dtype(), shape);
  std::size_t width = size_of(x.dtype());
  for_each_coords(shape, [&](const Coords& at, std::int64_t i) {
    std::memcpy(out.bytes() + std::size_t(i) * width, x.bytes() + std::size_t(from(at)) * width, width);
  });
  return out;
}

}  // namespace rlx
