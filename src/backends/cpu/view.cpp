#include "backends/cpu/view.h"

#include "rlx/ops.h"

namespace rlx::cpu {

Extents contiguous_strides(const Extents& shape) {
  Extents out(shape.size());
  std::int64_t step = 1;
  for (std::size_t d = shape.size(); d-- > 0; step *= shape[d]) out[d] = step;
  return out;
}

View contiguous_view(int buffer, const Extents& shape) { return {buffer, 0, shape, contiguous_strides(shape)}; }

bool View::is_contiguous() const {
  std::int64_t step = 1;
  for (std::size_t d = shape.size(); d-- > 0; step *= shape[d])
    if (shape[d] != 1 && strides[d] != step) return shape[d] == 0 || size() == 0;
  return true;
}

View broadcast_view(const View& view, const Extents& shape) {
  View out{view.buffer, view.offset, shape, Extents(shape.size(), 0)};
  std::size_t extra = shape.size() - view.shape.size();
  for (std::size_t d = 0; d < view.shape.size(); ++d)
    if (view.shape[d] != 1) out.strides[extra + d] = view.strides[d];
  return out;
}

std::optional<View> reshape_view(const View& view, const Extents& shape) {
  if (view.is_contiguous()) return View{view.buffer, view.offset, shape, contiguous_strides(shape)};
  // Runs of old axes that step as one axis are split anew among the new axes.
  Extents old_shape, old_strides;
  for (std::size_t d = 0; d < view.shape.size(); ++d)
    if (view.shape[d] != 1) old_shape.push_back(view.shape[d]), old_strides.push_back(view.strides[d]);
  View out{view.buffer, view.offset, shape, Extents(shape.size(), 0)};
  std::size_t i = 0, j = 0;
  while (i < old_shape.size()) {
    std::size_t first_i = i, first_j = j;
    std::int64_t have = old_shape[i++], want = 1;
    while (j < shape.size() && want < have) want *= shape[j++];
    while (want != have) {
      if (have < want) {
        if (i == old_shape.size()) return {};
        have *= old_shape[i++];
      } else {
        if (j == shape.size()) return {};
        want *= shape[j++];
      }
    }
    for (std::size_t d = first_i; d + 1 < i; ++d)
      if (old_strides[d] != old_strides[d + 1] * old_shape[d + 1]) return {};
    std::int64_t step = old_strides[i - 1];
    for (std::size_t d = j; d-- > first_j; step *= shape[d]) out.strides[d] = step;
  }
  return out;
}

static View sliced(const View& in, const SliceAttrs& attrs, const Extents& shape, const Bindings& symbols) {
  View out{in.buffer, in.offset, shape, in.strides};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    out.offset += attrs.starts[d].evaluate(symbols) * in.strides[d];
    out.strides[d] *= attrs.steps[d];
  }
  return out;
}

std::optional<View> move_view(Node node, const View& in, const Extents& shape, const Bindings& symbols) {
  if (node.is(ops::reshape)) return reshape_view(in, shape);
  if (node.is(ops::expand)) return broadcast_view(in, shape);
  if (node.is(ops::stop_gradient)) return in;
  if (node.is(ops::transpose)) {
    View out{in.buffer, in.offset, shape, Extents(shape.size())};
    auto& perm = node.attrs<PermAttrs>().perm;
    for (std::size_t d = 0; d < shape.size(); ++d) out.strides[d] = in.strides[std::size_t(perm[d])];
    return out;
  }
  if (node.is(ops::slice) && in.size() > 0) return sliced(in, node.attrs<SliceAttrs>(), shape, symbols);
  if (node.is(ops::flip) && in.size() > 0) {
    View out = in;
    for (int axis : normalize_axes(node.attrs<AxesAttrs>().axes, int(shape.size()))) {
      out.offset += (shape[std::size_t(axis)] - 1) * in.strides[std::size_t(axis)];
      out.strides[std::size_t(axis)] = -in.strides[std::size_t(axis)];
    }
    return out;
  }
  return {};
}

}  // namespace rlx::cpu
