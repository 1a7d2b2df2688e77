// Convolution over 1 to 3 spatial axes and its two gradients, which are the gradients of each other; the transposed
// convolution is the gradient to the input.
#include <fmt/format.h>

#include <array>

#include "ops/define.h"
#include "ops/eval.h"

namespace rlx {
namespace {

constexpr int kMaxSpatial = 3;

// Attributes with their defaults filled in. Throws UserError where one is wrong.
struct Window {
  Extents strides, low, high, dilation;
  int groups;
};
template <class A>
Window window_of(const A& attrs, std::size_t axes) {
  Window w{attrs.strides, attrs.low, attrs.high, attrs.dilation, attrs.groups};
  auto fill = [&](const char* name, Extents& list, std::int64_t value, std::int64_t least) {
    if (list.empty()) list.assign(axes, value);
    if (list.size() != axes)
      throw UserError(
          fmt::format("{} has {} entries, expected one for each of {} spatial axes", name, list.size(), axes));
    for (auto v : list)
      if (v < least) throw UserError(fmt::format("{} is {}, expected {} or more", name, to_string(list), least));
  };
  fill("strides", w.strides, 1, 1);
  fill("low", w.low, 0, 0);
  fill("high", w.high, 0, 0);
  fill("dilation", w.dilation, 1, 1);
  if (w.groups < 1) throw UserError(fmt::format("groups is {}, expected 1 or more", w.groups));
  return w;
}

Shape spatial(const Shape& shape) { return {shape.begin() + 2, shape.end()}; }
Shape with_spatial(Dim first, Dim second, const Shape& rest) {
  Shape out{std::move(first), std::move(second)};
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}
void check_ranks(const char* what, const Type& x, const char* other, const Type& w) {
  if (x.shape.size() != w.shape.size() || x.shape.size() < 3 || x.shape.size() > 2 + kMaxSpatial)
    throw UserError(
        fmt::format("{} and {} need the same rank of 3 to 5 (two axes, then 1 to 3 spatial ones), got {} and {}", what,
                    other, to_string(x.shape), to_string(w.shape)));
}
DType common_dtype(const TypeArgs& t) {
  DType d = promote(t.in[0].dtype, t.in[1].dtype);
  if (!is_int(d) && !is_float(d))
    throw UserError(fmt::format("needs numbers, got {} and {}", to_string(t.in[0].dtype), to_string(t.in[1].dtype)));
  return d;
}
void check_channels(const Dim& out_channels, const Window& w) {
  if (out_channels.is_number() && out_channels.number() % w.groups != 0)
    throw UserError(fmt::format("{} output channels do not divide into {} groups", out_channels.text(), w.groups));
}

// How many places a kernel has on an axis.
Shape places(const Shape& in, const Shape& kernel, const Window& w) {
  Shape out;
  for (std::size_t d = 0; d < in.size(); ++d) {
    Dim padded = in[d] + w.low[d] + w.high[d], reach = (kernel[d] - 1) * w.dilation[d] + 1;
    if (kernel[d] == Dim(0)) throw UserError(fmt::format("the kernel is empty: {}", to_string(kernel)));
    if (padded.is_number() && reach.is_number() && padded.number() < reach.number())
      throw UserError(fmt::format("the kernel reaches over {} of spatial axis {}, but the padded input has {}",
                                  reach.text(), d, padded.text()));
    out.push_back(floor_div(padded - reach, w.strides[d]) + 1);
  }
  return out;
}

Type infer_conv(const TypeArgs& t) {
  auto &x = t.in[0], &k = t.in[1];
  DType dtype = common_dtype(t);
  check_ranks("input", x, "weight", k);
  Window w = window_of(t.attrs.as<ConvAttrs>(), x.shape.size() - 2);
  if (x.shape[1] != k.shape[1] * w.groups)
    throw UserError(fmt::format("the input {} has {} channels, the weight {} with {} groups takes {}",
                                to_string(x.shape), x.shape[1].text(), to_string(k.shape), w.groups,
                                (k.shape[1] * w.groups).text()));
  check_channels(k.shape[0], w);
  return {dtype, with_spatial(x.shape[0], k.shape[0], places(spatial(x.shape), spatial(k.shape), w))};
}

void check_places(const Shape& got, const Shape& expected, const char* of) {
  if (got != expected)
    throw UserError(fmt::format("{} has spatial sizes {}, expected {} by the convolution", of, to_string(got),
                                to_string(expected)));
}

Type infer_backward_input(const TypeArgs& t) {
  auto &dy = t.in[0], &k = t.in[1];
  auto& attrs = t.attrs.as<ConvBackwardAttrs>();
  DType dtype = common_dtype(t);
  check_ranks("dy", dy, "weight", k);
  Window w = window_of(attrs, dy.shape.size() - 2);
  if (attrs.size.size() != dy.shape.size() - 2)
    throw UserError(fmt::format("size is {}, expected {} spatial sizes", to_string(attrs.size), dy.shape.size() - 2));
  if (dy.shape[1] != k.shape[0])
    throw UserError(fmt::format("dy {} has {} channels, the weight {} gives {}", to_string(dy.shape),
                                dy.shape[1].text(), to_string(k.shape), k.shape[0].text()));
  check_channels(k.shape[0], w);
  check_places(spatial(dy.shape), places(attrs.size, spatial(k.shape), w), "dy");
  return {dtype, with_spatial(dy.shape[0], k.shape[1] * w.groups, attrs.size)};
}

Type infer_backward_weight(const TypeArgs& t) {
  auto &x = t.in[0], &dy = t.in[1];
  auto& attrs = t.attrs.as<ConvBackwardAttrs>();
  DType dtype = common_dtype(t);
  check_ranks("input", x, "dy", dy);
  Window w = window_of(attrs, x.shape.size() - 2);
  if (attrs.size.size() != x.shape.size() - 2)
    throw UserError(fmt::format("size is {}, expected {} spatial sizes", to_string(attrs.size), x.shape.size() - 2));
  if (x.shape[0] != dy.shape[0])
    throw UserError(fmt::format("batches differ: got {} and {}", to_string(x.shape), to_string(dy.shape)));
  check_channels(dy.shape[1], w);
  Dim in_group = floor_div(x.shape[1], w.groups);
  if (in_group * w.groups != x.shape[1])
    throw UserError(fmt::format("{} input channels do not divide into {} groups", x.shape[1].text(), w.groups));
  check_places(spatial(dy.shape), places(spatial(x.shape), attrs.size, w), "dy");
  return {dtype, with_spatial(dy.shape[1], in_group, attrs.size)};
}

// ---------------------------------------------------------------------------------------------- values

using Spatial = std::array<std::int64_t, kMaxSpatial>;
Spatial padded_to_three(std::span<const std::int64_t> sizes, std::int64_t fill) {
  Spatial out;
  out.fill(fill);
  std::copy(sizes.begin(), sizes.end(), out.end() - std::ptrdiff_t(sizes.size()));
  return out;
}

// Calls f(offset in x, in w, in y) for every product that the convolution y of x [N,C,…] and w [O,C/groups,…] sums.
template <class F>
void each_product(const Extents& x, const Extents& w, const Extents& y, const Window& window, F&& f) {
  auto tail = [](const Extents& e) { return std::span(e).subspan(2); };
  Spatial in = padded_to_three(tail(x), 1), kernel = padded_to_three(tail(w), 1), out = padded_to_three(tail(y), 1);
  Spatial stride = padded_to_three(window.strides, 1), low = padded_to_three(window.low, 0),
          dilation = padded_to_three(window.dilation, 1);
  std::int64_t per_group = w[1], outs_per_group = w[0] / window.groups;
  auto area = [](const Spatial& s) { return s[0] * s[1] * s[2]; };
  auto at = [](const Spatial& s, std::int64_t i, std::int64_t j, std::int64_t k) { return (i * s[1] + j) * s[2] + k; };
  auto source = [&](int d, std::int64_t o, std::int64_t k) {
    return o * stride[std::size_t(d)] + k * dilation[std::size_t(d)] - low[std::size_t(d)];
  };
  auto inside = [&](int d, std::int64_t i) { return i >= 0 && i < in[std::size_t(d)]; };
  auto taps = [&](std::int64_t x_base, std::int64_t w_base, std::int64_t y_at, std::int64_t o0, std::int64_t o1,
                  std::int64_t o2) {
    for (std::int64_t k0 = 0; k0 < kernel[0]; ++k0) {
      std::int64_t i0 = source(0, o0, k0);
      if (!inside(0, i0)) continue;
      for (std::int64_t k1 = 0; k1 < kernel[1]; ++k1) {
        std::int64_t i1 = source(1, o1, k1);
        if (!inside(1, i1)) continue;
        for (std::int64_t k2 = 0; k2 < kernel[2]; ++k2)
          if (std::int64_t i2 = source(2, o2, k2); inside(2, i2))
            f(x_base + at(in, i0, i1, i2), w_base + at(kernel, k0, k1, k2), y_at);
      }
    }
  };
  for (std::int64_t n = 0; n < y[0]; ++n)
    for (std::int64_t o = 0; o < w[0]; ++o)
      for (std::int64_t c = 0; c < per_group; ++c) {
        std::int64_t x_base = (n * x[1] + o / outs_per_group * per_group + c) * area(in),
                     w_base = (o * per_group + c) * area(kernel);
        std::int64_t y_at = (n * w[0] + o) * area(out);
        for (std::int64_t o0 = 0; o0 < out[0]; ++o0)
          for (std::int64_t o1 = 0; o1 < out[1]; ++o1)
            for (std::int64_t o2 = 0; o2 < out[2]; ++o2) taps(x_base, w_base, y_at++, o0, o1, o2);
      }
}

enum class Result { Y, X, W };
template <Result result, class T>
Array sum_products(const EvalArgs& e, const Window& window) {
  Array a = e.in[0].cast(dtype_of<T>()), b = e.in[1].cast(dtype_of<T>()), out(dtype_of<T>(), e.shape);
  const T *p = a.template values<T>().data(), *q = b.template values<T>().data();
  T* r = out.template values<T>().data();
  if constexpr (result == Result::Y)
    each_product(a.shape(), b.shape(), e.shape, window, [&](auto x, auto w, auto y) { r[y] += p[x] * q[w]; });
  else if constexpr (result == Result::X)
    each_product(e.shape, b.shape(), a.shape(), window, [&](auto x, auto w, auto y) { r[x] += p[y] * q[w]; });
  else
    each_product(a.shape(), e.shape, b.shape(), window, [&](auto x, auto w, auto y) { r[w] += p[x] * q[y]; });
  return out.cast(e.dtype);
}
template <Result result, class A>
Array eval_products(const EvalArgs& e) {
  Window window = window_of(e.attrs.as<A>(), e.shape.size() - 2);
  return is_float(e.dtype) ? sum_products<result, double>(e, window) : sum_products<result, std::uint64_t>(e, window);
}

// ---------------------------------------------------------------------------------------------- gradients

ConvAttrs forward_of(const ConvBackwardAttrs& a) { return {a.strides, a.low, a.high, a.dilation, a.groups}; }

Node conv_transpose_body(Node x, Node k, const ConvTransposeAttrs& attrs) {
  check_ranks("input", x.type(), "weight", k.type());
  std::size_t axes = x.shape().size() - 2;
  Window w = window_of(attrs, axes);
  Extents extra = attrs.output_padding.empty() ? Extents(axes, 0) : attrs.output_padding;
  if (extra.size() != axes)
    throw UserError(
        fmt::format("output_padding has {} entries, expected one for each of {} spatial axes", extra.size(), axes));
  Shape size;
  for (std::size_t d = 0; d < axes; ++d) {
    if (extra[d] < 0 || extra[d] >= w.strides[d])
      throw UserError(fmt::format("output_padding is {}, expected 0 or more and less than the strides {}",
                                  to_string(extra), to_string(w.strides)));
    size.push_back((x.shape()[d + 2] - 1) * w.strides[d] - w.low[d] - w.high[d] +
                   (k.shape()[d + 2] - 1) * w.dilation[d] + 1 + extra[d]);
    if (size.back().is_number() && size.back().number() < 0)
      throw UserError(fmt::format("the padding takes more than the {} of spatial axis {}", to_string(x.shape()), d));
  }
  return conv_backward_input(x, k, {attrs.strides, attrs.low, attrs.high, attrs.dilation, attrs.groups}, size);
}

}  // namespace

constexpr OpDef conv_rules = {
    .infer = infer_conv,
    .eval = eval_products<Result::Y, ConvAttrs>,
    .grad = GRAD(conv_backward_input(dy, b, attrs.as<ConvAttrs>(), spatial(a.shape())),
                 conv_backward_weight(a, dy, attrs.as<ConvAttrs>(), spatial(b.shape()))),
};
constexpr OpDef conv_backward_input_rules = {
    // of (dy, w)
    .infer = infer_backward_input,
    .eval = eval_products<Result::X, ConvBackwardAttrs>,
    .grad = GRAD(conv(dy, b, forward_of(attrs.as<ConvBackwardAttrs>())),
                 conv_backward_weight(dy, a, forward_of(attrs.as<ConvBackwardAttrs>()), spatial(b.shape()))),
};
constexpr OpDef conv_backward_weight_rules = {
    // of (x, dy)
    .infer = infer_backward_weight,
    .eval = eval_products<Result::W, ConvBackwardAttrs>,
    .grad = GRAD(conv_backward_input(b, dy, forward_of(attrs.as<ConvBackwardAttrs>()), spatial(a.shape())),
                 conv(a, dy, forward_of(attrs.as<ConvBackwardAttrs>()))),
};
constexpr OpDef conv_transpose_rules = {
    .amp = AmpClass::Compute,
    .body = [](Node x, Node w, const ConvTransposeAttrs& attrs) { return conv_transpose_body(x, w, attrs); },
    .grad = by_body,
};

#define CONVOLUTION(...) DEFINE_OP(Contract, __VA_ARGS__)
#define CONVOLUTION_BY(...) DEFINE_OP(Composite, __VA_ARGS__)
#include "ops/ops.def"

}  // namespace rlx
