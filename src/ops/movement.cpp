// Ops that move elements and compute nothing. They take every dtype.
#include <fmt/format.h>

#include "ops/rules.h"

namespace rlx {

constexpr OpDef reshape_rules = {
    .infer = [](const TypeArgs& t) -> Type {
      auto& shape = t.attrs.as<ShapeAttrs>().shape;
      check_sizes(shape);
      if (!(count(shape) == count(t.in[0].shape)))
        throw UserError(
            fmt::format("element counts differ: got {} and {}", to_string(t.in[0].shape), to_string(shape)));
      return {t.in[0].dtype, shape};
    },
    .eval = [](const EvalArgs& e) { return e.in[0].reshaped(e.shape); },
    .grad = GRAD(reshape(dy, x.shape())),
};

constexpr OpDef expand_rules = {
    .infer = [](const TypeArgs& t) -> Type {
      auto& shape = t.attrs.as<ShapeAttrs>().shape;
      check_sizes(shape);
      if (broadcast(t.in[0].shape, shape) != shape)
        throw UserError(fmt::format("cannot repeat {} to {}", to_string(t.in[0].shape), to_string(shape)));
      return {t.in[0].dtype, shape};
    },
    .source =
        [](Coords& from, const Coords& at, std::span<const Extents> in, const EvalArgs&) {
          from.assign(at.end() - std::ptrdiff_t(in[0].size()), at.end());
          for (std::size_t d = 0; d < from.size(); ++d)
            if (in[0][d] == 1) from[d] = 0;
        },
    .grad = GRAD(dy),  // the sweep sums over what was repeated
};

// ---------------------------------------------------------------------------------------------- transpose, flip

static Axes inverse(const Axes& perm, int rank) {
  Axes out(perm.size()), from = normalize_perm(perm, rank);
  for (std::size_t d = 0; d < from.size(); ++d) out[std::size_t(from[d])] = int(d);
  return out;
}

constexpr OpDef transpose_rules = {
    .infer = [](const TypeArgs& t) -> Type {
      Type out{t.in[0].dtype, {}};
      for (int axis : normalize_perm(t.attrs.as<PermAttrs>().perm, int(t.in[0].shape.size())))
        out.shape.push_back(t.in[0].shape[std::size_t(axis)]);
      return out;
    },
    .eval =
        [](const EvalArgs& e) {
          auto& from = e.in[0].shape();
          Extents strides(from.size(), 1), moved;
          for (int d = int(from.size()) - 2; d >= 0; --d)
            strides[std::size_t(d)] = strides[std::size_t(d) + 1] * from[std::size_t(d) + 1];
          for (int axis : normalize_perm(e.attrs.as<PermAttrs>().perm, int(from.size())))
            moved.push_back(strides[std::size_t(axis)]);
          return move_elements(e.in[0], e.shape, [&](const Coords& at) {
            std::int64_t offset = 0;
            for (std::size_t d = 0; d < at.size(); ++d) offset += at[d] * moved[d];
            return offset;
          });
        },
    .grad = GRAD(transpose(dy, inverse(attrs.as<PermAttrs>().perm, x.rank()))),
};

constexpr OpDef flip_rules = {
    .infer = [](const TypeArgs& t) -> Type {
      normalize_axes(t.attrs.as<AxesAttrs>().axes, int(t.in[0].shape.size()));
      return t.in[0];
    },
    .eval =
        [](const EvalArgs& e) {
          Axes axes = normalize_axes(e.attrs.as<AxesAttrs>().axes, int(e.shape.size()));
          return move_elements(e.in[0], e.shape, [&](Coords at) {
            for (int axis : axes) at[std::size_t(axis)] = e.shape[std::size_t(axis)] - 1 - at[std::size_t(axis)];
            return offset_of(at, e.shape);
          });
        },
    .grad = GRAD(flip(dy, attrs.as<AxesAttrs>().axes)),
};

// ---------------------------------------------------------------------------------------------- slice, pad

// Every element that is read lies inside, as far as the sizes are known.
static void check_slice(const Shape& starts, const Shape& sizes, const Extents& steps, const Shape& shape) {
  check_entries("starts", starts.size(), shape.size());
  check_entries("sizes", sizes.size(), shape.size());
  check_entries("steps", steps.size(), shape.size());
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (steps[d] == 0) throw UserError(fmt::format("the step of axis {} is 0", d));
    if (is_negative(sizes[d]))
      throw UserError(fmt::format("the size of axis {} is {}, expected 0 or more", d, sizes[d].text()));
    if (sizes[d] == Dim(0)) continue;
    Dim last = starts[d] + (sizes[d] - 1) * Dim(steps[d]);
    if (is_negative(starts[d]) || is_negative(last) || is_negative(shape[d] - 1 - starts[d]) ||
        is_negative(shape[d] - 1 - last))
      throw UserError(fmt::format("axis {}: {} elements from {} by steps of {} do not lie inside {}", d,
                                  sizes[d].text(), starts[d].text(), steps[d], to_string(shape)));
  }
}

static Shape with_values(const Shape& shape, const Bindings& symbols) {
  Shape out;
  for (auto& d : shape) out.push_back(d.evaluate(symbols));
  return out;
}

// dy with step - 1 zeros after each element of an axis.
static Node spread(Node dy, std::size_t axis, std::int64_t step) {
  Shape shape = dy.shape(), low(shape.size() + 1, 0), high = low;
  shape.insert(shape.begin() + std::ptrdiff_t(axis) + 1, 1);
  high[axis + 1] = step - 1;
  Node spaced = pad(reshape(dy, shape), low, high, 0);
  shape = dy.shape();
  shape[axis] = shape[axis] * Dim(step);
  return reshape(spaced, shape);
}

// Puts dy back where it was cut out, zeros around it.
static Node slice_grad(const SliceAttrs& s, Node x, Node dy) {
  std::size_t rank = s.steps.size();
  Shape low = s.starts, high(rank);
  Axes backwards;
  for (std::size_t d = 0; d < rank; ++d) {
    if (s.sizes[d] == Dim(0)) return full_like(x, 0);
    if (s.steps[d] > 0) continue;
    backwards.push_back(int(d));
    low[d] = min(s.starts[d] + (s.sizes[d] - 1) * Dim(s.steps[d]), x.shape()[d]);
  }
  if (!backwards.empty()) dy = flip(dy, backwards);
  for (std::size_t d = 0; d < rank; ++d) {
    std::int64_t step = std::abs(s.steps[d]);
    if (step != 1) {
      dy = spread(dy, d, step);
      Shape sizes = dy.shape();
      sizes[d] = min(sizes[d], x.shape()[d] - low[d]);  // the zeros after the last may not all fit
      dy = slice(dy, Shape(rank, 0), sizes, Extents(rank, 1));
    }
    high[d] = x.shape()[d] - low[d] - dy.shape()[d];
  }
  return pad(dy, low, high, 0);
}

constexpr OpDef slice_rules = {
    .infer = [](const TypeArgs& t) -> Type {
      auto& s = t.attrs.as<SliceAttrs>();
      check_slice(s.starts, s.sizes, s.steps, t.in[0].shape);
      return {t.in[0].dtype, s.sizes};
    },
    .eval =
        [](const EvalArgs& e) {
          auto& s = e.attrs.as<SliceAttrs>();
          auto& shape = e.in[0].shape();
          Shape starts = with_values(s.starts, e.symbols);
          check_slice(starts, to_shape(e.shape), s.steps, to_shape(shape));
          return move_elements(e.in[0], e.shape, [&](const Coords& at) {
            std::int64_t offset = 0;
            for (std::size_t d = 0; d < at.size(); ++d)
              offset = offset * shape[d] + starts[d].number() + at[d] * s.steps[d];
            return offset;
          });
        },
    .grad = GRAD(slice_grad(attrs.as<SliceAttrs>(), x, dy)),
};

static void check_pads(const Shape& low, const Shape& high) {
  for (std::size_t d = 0; d < low.size(); ++d)
    if (is_negative(low[d]) || is_negative(high[d]))
      throw UserError(
          fmt::format("axis {} gets {} elements before and {} after, expected 0 or more (slice takes some away)", d,
                      low[d].text(), high[d].text()));
}

constexpr OpDef pad_rules = {
    .infer = [](const TypeArgs& t) -> Type {
      auto& p = t.attrs.as<PadAttrs>();
      Type out = t.in[0];
      check_entries("low", p.low.size(), out.shape.size());
      check_entries("high", p.high.size(), out.shape.size());
      check_pads(p.low, p.high);
      check_value(p.value, out.dtype);
      for (std::size_t d = 0; d < out.shape.size(); ++d) out.shape[d] = p.low[d] + out.shape[d] + p.high[d];
      return out;
    },
    .eval =
        [](const EvalArgs& e) {
          auto& p = e.attrs.as<PadAttrs>();
          Shape low = with_values(p.low, e.symbols);
          check_pads(low, with_values(p.high, e.symbols));
          auto& x = e.in[0];
          std::size_t width = size_of(e.dtype);
          Array out(e.dtype, e.shape), value = Array::scalar(p.value, e.dtype);
          if (p.value != 0 || std::signbit(p.value))
            for (std::int64_t i = 0; i < out.size(); ++i)
              std::memcpy(out.bytes() + std::size_t(i) * width, value.bytes(), width);
          for_each_coords(x.shape(), [&](const Coords& at, std::int64_t i) {
            std::int64_t offset = 0;
            for (std::size_t d = 0; d < at.size(); ++d) offset = offset * e.shape[d] + low[d].number() + at[d];
            std::memcpy(out.bytes() + std::size_t(offset) * width, x.bytes() + std::size_t(i) * width, width);
          });
          return out;
        },
    .grad = GRAD(slice(dy, attrs.as<PadAttrs>().low, x.shape(), Extents(std::size_t(x.rank()), 1))),
};

// ---------------------------------------------------------------------------------------------- concat, iota

static Nodes concat_grad(const GradArgs& g) {
  std::size_t rank = g.y.shape().size(), axis = std::size_t(normalize_axis(g.attrs.as<AxisAttrs>().axis, int(rank)));
  Nodes out;
  Shape starts(rank, 0);
  for (auto& part : g.in) {
    out.push_back(slice(g.dy, starts, part.shape(), Extents(rank, 1)));
    starts[axis] = starts[axis] + part.shape()[axis];
  }
  return out;
}

constexpr OpDef concat_rules = {
    .infer = [](const TypeArgs& t) -> Type {
      Type out = t.in[0];
      std::size_t axis = std::size_t(normalize_axis(t.attrs.as<AxisAttrs>().axis, int(out.shape.size())));
      for (std::size_t i = 1; i < t.in.size(); ++i) {
        auto& in = t.in[i];
        if (in.dtype != out.dtype)
          throw UserError(
              fmt::format("inputs need one dtype: got {} and {}", to_string(out.dtype), to_string(in.dtype)));
        bool fits = in.shape.size() == out.shape.size();
        for (std::size_t d = 0; fits && d < out.shape.size(); ++d) fits = d == axis || in.shape[d] == out.shape[d];
        if (!fits)
          throw UserError(fmt::format("inputs may only differ in axis {}: got {} and {}", axis,
                                      to_string(t.in[0].shape), to_string(in.shape)));
        out.shape[axis] = out.shape[axis] + in.shape[axis];
      }
      return out;
    },
    .eval =
        [](const EvalArgs& e) {
          int axis = normalize_axis(e.attrs.as<AxisAttrs>().axis, int(e.shape.size()));
          Array out(e.dtype, e.shape);
          AxisView to(e.shape, axis);
          std::size_t row = std::size_t(to.n * to.inner) * size_of(e.dtype), at = 0;
          for (auto& in : e.in) {
            std::size_t part = std::size_t(in.shape()[std::size_t(axis)] * to.inner) * size_of(e.dtype);
            for (std::size_t i = 0; part && i < std::size_t(to.outer); ++i)
              std::memcpy(out.bytes() + i * row + at, in.bytes() + i * part, part);
            at += part;
          }
          return out;
        },
    .grad = concat_grad,
};

static void check_iota(const Dim& n, DType dtype) {
  if (n.is_number() && n.number() > 0 && is_int(dtype)) check_value(double(n.number() - 1), dtype);
}

constexpr OpDef iota_rules = {
    .infer = [](const TypeArgs& t) -> Type {
      auto& a = t.attrs.as<IotaAttrs>();
      check_sizes(a.shape);
      if (!is_int(a.dtype) && !is_float(a.dtype))
        throw UserError(fmt::format("gives numbers, got {}", to_string(a.dtype)));
      check_iota(a.shape[std::size_t(normalize_axis(a.axis, int(a.shape.size())))], a.dtype);
      return {a.dtype, a.shape};
    },
    .eval =
        [](const EvalArgs& e) {
          auto axis = std::size_t(normalize_axis(e.attrs.as<IotaAttrs>().axis, int(e.shape.size())));
          check_iota(e.shape[axis], e.dtype);
          Array out(DType::I64, e.shape);
          auto values = out.values<std::int64_t>();
          for_each_coords(e.shape, [&](const Coords& at, std::int64_t i) { values[std::size_t(i)] = at[axis]; });
          return out.cast(e.dtype);
        },
    .grad = GRAD(none),
};

#define MOVEMENT(...) DEFINE_OP(Movement, __VA_ARGS__)
#include "ops/ops.def"

}  // namespace rlx
