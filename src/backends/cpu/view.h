// A strided window on a buffer: how movement ops become no work.
#pragma once
#include <optional>

#include "rlx/op_def.h"

namespace rlx::cpu {

/// Element `coords` is at offset + Σ coords[d] · strides[d], in elements of the buffer.
struct View {
  int buffer = -1;
  std::int64_t offset = 0;
  Extents shape, strides;

  bool is_contiguous() const;
  std::int64_t size() const { return count(shape); }
};

Extents contiguous_strides(const Extents& shape);
View contiguous_view(int buffer, const Extents& shape);
/// The view broadcast to a shape, NumPy's way: repeated axes get stride 0.
View broadcast_view(const View& view, const Extents& shape);
/// The same elements in another shape, where strides can say it.
std::optional<View> reshape_view(const View& view, const Extents& shape);
/// What a movement op makes of the view of its input, where strides can say it. `shape` is the node's own.
std::optional<View> move_view(Node node, const View& in, const Extents& shape, const Bindings& symbols);

}  // namespace rlx::cpu
