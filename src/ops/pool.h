// The windows of a pool, axis by axis: what every backend needs to know of them.
#pragma once
#include "rlx/op_attrs.h"

namespace rlx {

/// One axis of a window: it reads, for output o, the elements o * stride - low + i * dilation, i < kernel.
struct PoolAxis {
  std::int64_t kernel = 1, stride = 1, low = 0, high = 0, dilation = 1;
};
/// One entry an axis after N and C; throws UserError where the attributes do not fit or make no sense.
std::vector<PoolAxis> pool_axes(const PoolAttrs& pool, std::size_t axes);
/// The shape that pooling x gives; throws UserError.
Shape pooled_shape(const Shape& x, const PoolAttrs& pool);

}  // namespace rlx
