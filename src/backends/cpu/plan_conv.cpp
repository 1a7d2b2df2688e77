// Convolutions and their gradients, through oneDNN: in f32, 16-bit results rounded once from it.
#include "backends/cpu/conv.h"
#include "backends/cpu/planner.h"

namespace rlx::cpu {
namespace {

// The sizes of a convolution of x with w; Attrs is that of any of the convolution ops.
template <class Attrs> ConvArgs conv_args(const Attrs& attrs, const Extents& x, const Extents& w) {
  ConvArgs c;
  c.spatial = int(x.size()) - 2;
  c.batch = x[0], c.in_channels = x[1], c.out_channels = w[0], c.groups = attrs.groups;
  auto or_else = [](const Extents& list, std::size_t i, std::int64_t usual) { return list.empty() ? usual : list[i]; };
  for (std::size_t d = 0; d + 2 < x.size(); ++d) {
    c.in[d] = x[d + 2], c.kernel[d] = w[d + 2];
    c.stride[d] = or_else(attrs.strides, d, 1), c.dilation[d] = or_else(attrs.dilation, d, 1);
    c.pad_begin[d] = or_else(attrs.low, d, 0), c.pad_end[d] = or_else(attrs.high, d, 0);
  }
  return c;
}

// Whether the kernel, which may refuse a case only when it runs, has what it needs.
bool is_supported(const ConvArgs& c) {
  if (c.spatial < 1 || c.spatial > 3) return false;
  for (int d = 0; d < c.spatial; ++d)
    if (c.pad_begin[std::size_t(d)] < 0 || c.pad_end[std::size_t(d)] < 0) return false;
  return true;
}

}  // namespace

bool Planner::plan_conv(Node n) {
  using Kernel = bool (*)(const ConvArgs&, const float*, const float*, float*);
  ConvArgs c;
  Kernel kernel = nullptr;
  auto shape = [&](int i) { return at(n.input(i)).shape; };
  if (n.is(ops::conv)) {
    c = conv_args(n.attrs<ConvAttrs>(), shape(0), shape(1));
    kernel = [](const ConvArgs& c, const float* x, const float* w, float* y) { return conv_forward(c, x, w, y); };
  } else if (n.is(ops::conv_backward_input)) {
    c = conv_args(n.attrs<ConvBackwardAttrs>(), at(n).shape, shape(1));
    kernel = conv_backward_data;
  } else if (n.is(ops::conv_backward_weight)) {
    c = conv_args(n.attrs<ConvBackwardAttrs>(), shape(0), at(n).shape);
    kernel = conv_backward_weights;
  } else {
    return false;
  }
  Node a = n.input(0), b = n.input(1);
  auto is_narrow = [](DType d) { return d == DType::F32 || d == DType::BF16 || d == DType::F16; };
  if (!is_narrow(a.dtype()) || !is_narrow(b.dtype()) || !is_narrow(n.dtype()) || !is_supported(c)) return false;
  View va = contiguous_f32_memory(a), vb = contiguous_f32_memory(b), out = f32_storage(n);
  add_step({.name = "conv " + label_of(n), .reads = {va.buffer, vb.buffer}, .writes = {out.buffer}, .kept = at(n).kept, .interpreted = false,
            .run = [=, label = n.text()](std::byte* const* buffers) {
              auto data = [&](const View& v) { return reinterpret_cast<float*>(buffers[v.buffer]) + v.offset; };
              if (!kernel(c, data(va), data(vb), data(out))) throw Unsupported("[conv] the library refuses " + label);
            }});
  finish_f32(n, out);
  return true;
}

}  // namespace rlx::cpu
