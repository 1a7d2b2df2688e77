// Pools: the largest or the mean of each window over the axes after N and C.
#include "ops/pool.h"

#include <fmt/format.h>

#include "ops/rules.h"

namespace rlx {

std::vector<PoolAxis> pool_axes(const PoolAttrs& p, std::size_t axes) {
  auto take = [&](const char* name, const Extents& given, std::size_t d, std::int64_t fallback, std::int64_t least) {
    if (given.empty() && std::string_view(name) != "kernel") return fallback;
    check_entries(name, given.size(), axes);
    if (given[d] < least || given[d] > INT32_MAX)
      throw UserError(fmt::format("`{}` is {}, expected {} to {}", name, to_string(given), least, INT32_MAX));
    return given[d];
  };
  std::vector<PoolAxis> out(axes);
  for (std::size_t d = 0; d < axes; ++d) {
    PoolAxis& a = out[d];
    a = {take("kernel", p.kernel, d, 1, 1), take("strides", p.strides, d, 1, 1), take("low", p.low, d, 0, 0),
         take("high", p.high, d, 0, 0), take("dilation", p.dilation, d, 1, 1)};
    std::int64_t span = (a.kernel - 1) * a.dilation + 1;
    if (a.low >= span || a.high >= span)
      throw UserError(
          fmt::format("axis {} is padded by {} and {}, expected less than the window's {}", d, a.low, a.high, span));
  }
  return out;
}

// How many windows an axis has. In ceil_mode a last one that would start past the input and its left padding is
// dropped.
static Dim windows(const Dim& n, const PoolAxis& a, bool ceil_mode) {
  Dim span = (a.kernel - 1) * a.dilation + 1, room = n + a.low + a.high - span;
  if (n == Dim(0)) return 0;
  Dim out =
      ceil_mode ? min(ceil_div(room, a.stride) + 1, ceil_div(n + a.low, a.stride)) : floor_div(room, a.stride) + 1;
  if (out.is_number() && out.number() < 1)
    throw UserError(fmt::format("a window of {} is larger than the axis of {} with its padding of {}", span.text(),
                                n.text(), a.low + a.high));
  return out;
}

// Whether every window reads an element of n. One that starts inside does, and so does one that starts before if no
// step of its is longer than the axis.
static void check_windows(const Dim& n, const Dim& windows, const PoolAxis& a, std::size_t axis) {
  if (!n.is_number() || n == Dim(0) || a.dilation <= n.number()) return;
  std::int64_t before = std::min((a.low + a.stride - 1) / a.stride, windows.number());
  if (before > 1 << 20)
    throw Unsupported(fmt::format("axis {} is padded by {} before its {} elements", axis, a.low, n.text()));
  for (std::int64_t o = 0; o < before; ++o) {
    std::int64_t first = (a.low - o * a.stride) % a.dilation;  // the first place at or after 0
    if (first) first = a.dilation - first;
    if (first >= n.number())
      throw UserError(fmt::format("window {} of axis {} holds no element of its {}", o, axis, n.text()));
  }
}

Shape pooled_shape(const Shape& x, const PoolAttrs& p) {
  if (x.size() < 3 || x.size() > 5)
    throw UserError(fmt::format("needs N, C and 1 to 3 more axes, got {}", to_string(x)));
  auto axes = pool_axes(p, x.size() - 2);
  Shape out = x;
  for (std::size_t d = 0; d < axes.size(); ++d) {
    out[d + 2] = windows(x[d + 2], axes[d], p.ceil_mode);
    check_windows(x[d + 2], out[d + 2], axes[d], d + 2);
  }
  return out;
}

PoolWindows::PoolWindows(const Extents& x, const Extents& y, const PoolAttrs& p)
    : planes(x[0] * x[1]), count_pad(p.count_include_pad) {
  auto axes = pool_axes(p, x.size() - 2);
  for (std::size_t d = 0; d < axes.size(); ++d) {
    std::size_t k = d + 3 - axes.size();
    axis[k] = axes[d], in[k] = x[d + 2], out[k] = y[d + 2];
  }
}
double PoolWindows::divisor(std::int64_t o) const {
  std::int64_t at[3] = {o / (out[1] * out[2]), o / out[2] % out[1], o % out[2]};
  double product = 1;
  for (int d = 0; d < 3; ++d) {
    std::int64_t n = 0, pad = count_pad ? 1 : 0;
    for (std::int64_t i = 0, p = at[d] * axis[d].stride - axis[d].low; i < axis[d].kernel; ++i, p += axis[d].dilation)
      n += p >= -axis[d].low * pad && p < in[d] + axis[d].high * pad;
    product *= double(n);
  }
  return product;
}

namespace {

// The place of the first largest element of each window, in its plane; NaN is larger than all.
Array largest_places(const Array& x, const Extents& shape, const PoolAttrs& pool) {
  PoolWindows w(x.shape(), shape, pool);
  Array out(DType::I64, shape);
  auto places = out.values<std::int64_t>();
  auto find = [&]<class T>(T) {
    Array wide = x.cast(dtype_of<T>());
    for (std::int64_t i = 0; i < std::int64_t(places.size()); ++i) {
      const T* plane = wide.values<T>().data() + i / w.out_size() * w.in_size();
      std::int64_t best = -1;
      w.for_each(i % w.out_size(), [&](std::int64_t at) {
        if (best < 0 || plane[at] > plane[best] || (plane[at] != plane[at] && plane[best] == plane[best])) best = at;
      });
      if (best < 0) throw UserError(fmt::format("a window holds no element of {}", to_string(x.shape())));
      places[std::size_t(i)] = best;
    }
  };
  if (is_float(x.dtype()))
    find(double());
  else if (is_unsigned_int(x.dtype()))
    find(std::uint64_t());
  else
    find(std::int64_t());
  return out;
}

Shape max_shape(const TypeArgs& t) {
  auto& p = t.attrs.as<PoolAttrs>();
  if (!is_int(t.in[0].dtype) && !is_float(t.in[0].dtype))
    throw UserError(fmt::format("needs numbers, got {}", to_string(t.in[0].dtype)));
  if (p.count_include_pad) throw UserError("count_include_pad is for avg_pool only");
  return pooled_shape(t.in[0].shape, p);
}

// The axes after N and C as one.
Shape flat(const Shape& x) { return {x[0], x[1], count(Shape(x.begin() + 2, x.end()))}; }

Node max_pool_grad(Node x, Node dy, const PoolAttrs& pool) {
  Node places = max_pool_indices(x, pool);
  Node zeros = full(x.graph(), 0, {x.dtype(), flat(x.shape())});
  Node out =
      scatter_elements(zeros, reshape(places, flat(dy.shape())), reshape(dy, flat(dy.shape())), 2, ScatterMode::Add);
  return reshape(out, x.shape());
}

PoolAttrs pool_of(const AvgPoolBackwardAttrs& a) {
  return {a.kernel, a.strides, a.low, a.high, a.dilation, a.ceil_mode, a.count_include_pad};
}

void need_float(DType d) {
  if (!is_float(d)) throw UserError(fmt::format("needs floats, got {} (cast them first)", to_string(d)));
}

}  // namespace

constexpr OpDef max_pool_rules = {
    .infer = [](const TypeArgs& t) -> Type {
      return {t.in[0].dtype, max_shape(t)};
    },
    .eval =
        [](const EvalArgs& e) {
          Array places = largest_places(e.in[0], e.shape, e.attrs.as<PoolAttrs>()), out(e.dtype, e.shape);
          PoolWindows w(e.in[0].shape(), e.shape, e.attrs.as<PoolAttrs>());
          std::size_t width = size_of(e.dtype);
          for (std::int64_t i = 0; i < out.size(); ++i)
            std::memcpy(
                out.bytes() + std::size_t(i) * width,
                e.in[0].bytes() +
                    std::size_t(i / w.out_size() * w.in_size() + places.values<std::int64_t>()[std::size_t(i)]) * width,
                width);
          return out;
        },
    .grad = GRAD(max_pool_grad(x, dy, attrs.as<PoolAttrs>())),
};

constexpr OpDef max_pool_indices_rules = {
    .infer = [](const TypeArgs& t) -> Type {
      return {DType::I64, max_shape(t)};
    },
    .eval = [](const EvalArgs& e) { return largest_places(e.in[0], e.shape, e.attrs.as<PoolAttrs>()); },
    .grad = GRAD(none),
};

constexpr OpDef avg_pool_rules = {
    .amp = AmpClass::Reduction,
    .infer = [](const TypeArgs& t) -> Type {
      need_float(t.in[0].dtype);
      return {t.in[0].dtype, pooled_shape(t.in[0].shape, t.attrs.as<PoolAttrs>())};
    },
    .eval =
        [](const EvalArgs& e) {
          PoolWindows w(e.in[0].shape(), e.shape, e.attrs.as<PoolAttrs>());
          Array wide = e.in[0].cast(DType::F64), out(DType::F64, e.shape);
          auto x = wide.values<double>(), y = out.values<double>();
          for (std::int64_t i = 0; i < out.size(); ++i) {
            double total = 0;
            w.for_each(i % w.out_size(),
                       [&](std::int64_t at) { total += x[std::size_t(i / w.out_size() * w.in_size() + at)]; });
            y[std::size_t(i)] = total / w.divisor(i % w.out_size());
          }
          return out.cast(e.dtype);
        },
    .grad = GRAD(avg_pool_backward(dy, x.shape(), attrs.as<PoolAttrs>())),
};

constexpr OpDef avg_pool_backward_rules = {
    .amp = AmpClass::Reduction,
    .infer = [](const TypeArgs& t) -> Type {
      auto& a = t.attrs.as<AvgPoolBackwardAttrs>();
      need_float(t.in[0].dtype);
      check_sizes(a.shape);
      Shape pooled = pooled_shape(a.shape, pool_of(a));
      if (t.in[0].shape != pooled)
        throw UserError(fmt::format("got the cotangent {}, expected {} for {}", to_string(t.in[0].shape),
                                    to_string(pooled), to_string(a.shape)));
      return {t.in[0].dtype, a.shape};
    },
    .eval =
        [](const EvalArgs& e) {
          PoolWindows w(e.shape, e.in[0].shape(), pool_of(e.attrs.as<AvgPoolBackwardAttrs>()));
          Array wide = e.in[0].cast(DType::F64), out(DType::F64, e.shape);
          auto dy = wide.values<double>(), dx = out.values<double>();
          for (std::int64_t i = 0; i < wide.size(); ++i) {
            double part = dy[std::size_t(i)] / w.divisor(i % w.out_size());
            w.for_each(i % w.out_size(),
                       [&](std::int64_t at) { dx[std::size_t(i / w.out_size() * w.in_size() + at)] += part; });
          }
          return out.cast(e.dtype);
        },
    .grad = GRAD(avg_pool(dy, pool_of(attrs.as<AvgPoolBackwardAttrs>()))),
};

#define POOL(...) DEFINE_OP(Pool, __VA_ARGS__)
#include "ops/ops.def"

}  // namespace rlx
