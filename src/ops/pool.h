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

/// A pool of any rank as one of three axes after N * C.
struct PoolWindows {
  std::int64_t planes = 1, in[3] = {1, 1, 1}, out[3] = {1, 1, 1};
  PoolAxis axis[3];
  bool count_pad;

  /// Of x and the pooled shape y.
  PoolWindows(const Extents& x, const Extents& y, const PoolAttrs& pool);
  std::int64_t in_size() const { return in[0] * in[1] * in[2]; }
  std::int64_t out_size() const { return out[0] * out[1] * out[2]; }
  /// Elements that the windows of a plane read at most.
  std::int64_t reads() const { return out_size() * axis[0].kernel * axis[1].kernel * axis[2].kernel; }
  /// Calls f(place in the plane) for each element of the window at output place o, in row-major order.
  template <class F>
  void for_each(std::int64_t o, F&& f) const {
    std::int64_t at[3] = {o / (out[1] * out[2]), o / out[2] % out[1], o % out[2]};
    for (int d = 0; d < 3; ++d) at[d] = at[d] * axis[d].stride - axis[d].low;
    for (std::int64_t i = 0; i < axis[0].kernel; ++i)
      for (std::int64_t j = 0; j < axis[1].kernel; ++j)
        for (std::int64_t k = 0; k < axis[2].kernel; ++k) {
          std::int64_t p[3] = {at[0] + i * axis[0].dilation, at[1] + j * axis[1].dilation,
                               at[2] + k * axis[2].dilation};
          bool inside = true;
          for (int d = 0; d < 3; ++d) inside = inside && p[d] >= 0 && p[d] < in[d];
          if (inside) f((p[0] * in[1] + p[1]) * in[2] + p[2]);
        }
  }
  /// What the mean at output place o is divided by.
  double divisor(std::int64_t o) const;
};

}  // namespace rlx
