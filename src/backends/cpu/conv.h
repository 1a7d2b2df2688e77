// f32 convolution and its two gradients on the CPU, split by images and channels, so that the bits do not depend on the
// number of threads.
#pragma once
#include <array>
#include <cstdint>
#include <memory>

namespace rlx::cpu {

/// A convolution over 1 to 3 spatial axes: x [batch, in_channels, in…], w [out_channels, in_channels / groups,
/// kernel…], y [batch, out_channels, out…], all dense. A dilation of 1 is none. Pads may differ at the two ends.
struct ConvArgs {
  int spatial = 2;
  std::int64_t batch = 0, in_channels = 0, out_channels = 0, groups = 1;
  std::array<std::int64_t, 3> in{}, kernel{}, stride{1, 1, 1}, dilation{1, 1, 1}, pad_begin{}, pad_end{};

  /// floor((in + pads - dilation * (kernel - 1) - 1) / stride) + 1, at least 0.
  std::int64_t out(int axis) const;
};

/// Weights in the order in which conv_forward reads them, for weights that stay the same over many calls.
class PackedWeights;
std::shared_ptr<const PackedWeights> pack_weights(const ConvArgs&, const float* w);

/// Each returns false, having written nothing, where the case is not supported: negative pads, or what oneDNN refuses.
/// Throws UserError for sizes that make no sense (a kernel, stride, dilation or group count below 1, channels that the
/// groups do not divide). `packed`, where given, was made from the same args but for the batch, and w.
bool conv_forward(const ConvArgs&, const float* x, const float* w, float* y, const PackedWeights* packed = nullptr);
/// d x from d y; also the forward of a transposed convolution.
bool conv_backward_data(const ConvArgs&, const float* dy, const float* w, float* dx);
bool conv_backward_weights(const ConvArgs&, const float* x, const float* dy, float* dw);

}  // namespace rlx::cpu
