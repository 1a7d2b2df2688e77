// Short names for a few ops together: what ops.def lists as helpers of values and movement.
#include <fmt/format.h>

#include "ops/rules.h"

namespace rlx {

Node full(Graph graph, double value, Type type) {
  check_sizes(type.shape);
  return expand(graph.constant(value, type.dtype), type.shape);
}
Node full_like(Node x, double value) { return full(x.graph(), value, x.type()); }

Node swap_last(Node x) {
  if (x.rank() < 2) throw UserError(fmt::format("[swap_last] needs two axes or more, got {}", x.text()));
  Axes perm = all_axes(x.rank());
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return transpose(x, perm);
}

Node squeeze(Node x, Axes axes) {
  for (int axis : normalize_axes(axes, x.rank()))
    if (!(x.dim(axis) == Dim(1)))
      throw UserError(
          fmt::format("[squeeze] axis {} has size {}, expected 1 (of {})", axis, x.dim(axis).text(), x.text()));
  return reshape(x, reduced_shape(x.shape(), axes, false));
}

Node unsqueeze(Node x, Axes axes) {
  Shape shape = x.shape();
  for (int axis : normalize_axes(axes, x.rank() + int(axes.size()))) shape.insert(shape.begin() + axis, 1);
  return reshape(x, shape);
}

// A bound of a slice as a place: counted from the start, inside [least, most].
static Dim place(const Dim& bound, const Dim& n, const Dim& least, const Dim& most) {
  constexpr std::int64_t kFar = std::int64_t(1) << 62;
  if (!bound.is_number()) return bound;  // checked when it gets its value
  std::int64_t at = bound.number();
  if (at >= kFar) return most;
  if (at < -kFar) return least;
  if (!n.is_number()) return at < 0 ? n + at : at == 0 ? Dim(0) : min(at, most);
  return max(min(at < 0 ? n + at : Dim(at), most), least);
}

Node slice_axis(Node x, int axis, Dim start, Dim stop, std::int64_t step) {
  if (step == 0) throw UserError(fmt::format("[slice_axis] the step is 0 (of {})", x.text()));
  auto at = std::size_t(normalize_axis(axis, x.rank()));
  const Dim& n = x.shape()[at];
  Dim least = step > 0 ? 0 : -1, most = step > 0 ? n : n - 1;
  start = place(start, n, least, most), stop = place(stop, n, least, most);
  Dim size = step > 0 ? ceil_div(stop - start, step) : ceil_div(start - stop, -step);
  if (is_negative(size)) size = 0;
  Shape starts(x.shape().size(), 0), sizes = x.shape();
  Extents steps(x.shape().size(), 1);
  starts[at] = size == Dim(0) ? Dim(0) : start, sizes[at] = size, steps[at] = step;
  return slice(x, starts, sizes, steps);
}

Nodes split(Node x, int axis, Shape sizes) {
  axis = normalize_axis(axis, x.rank());
  Dim total = 0;
  for (auto& size : sizes) total = total + size;
  if (!(total == x.dim(axis)))
    throw UserError(fmt::format("[split] the sizes {} add up to {}, expected {}, the size of axis {} (of {})",
                                to_string(sizes), total.text(), x.dim(axis).text(), axis, x.text()));
  Nodes out;
  Shape starts(x.shape().size(), 0), shape = x.shape();
  for (auto& size : sizes) {
    shape[std::size_t(axis)] = size;
    out.push_back(slice(x, starts, shape, Extents(starts.size(), 1)));
    starts[std::size_t(axis)] = starts[std::size_t(axis)] + size;
  }
  return out;
}

Node stack(Nodes xs, int axis) {
  for (auto& x : xs) x = unsqueeze(x, {axis});
  return concat(xs, axis);
}

}  // namespace rlx
