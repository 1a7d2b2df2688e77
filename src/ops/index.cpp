// Ops that read or write at computed places. An index outside its range is an error; a negative one counts from the
// end.
#include <fmt/format.h>

#include <numeric>

#include "ops/rules.h"

namespace rlx {

std::span<const std::string_view> enum_names(ScatterMode) {
  static constexpr std::string_view kNames[] = {"set", "add"};
  return kNames;
}

static void check_indices(DType dtype) {
  if (!is_int(dtype)) throw UserError(fmt::format("indices must be integers, got {}", to_string(dtype)));
}

// The indices counted from 0; throws UserError that names one outside. Negative ones count from the end where `wrap`.
static std::vector<std::int64_t> read_indices(const Array& indices, std::int64_t n, int axis, bool wrap = true) {
  std::int64_t least = wrap ? -n : 0;
  std::vector<std::int64_t> out = indices.to_vector<std::int64_t>();
  auto fail = [&](std::size_t i, const std::string& value) {
    Coords at;
    for_each_coords(indices.shape(), [&](const Coords& c, std::int64_t k) {
      if (k == std::int64_t(i)) at = c;
    });
    throw UserError(
        fmt::format("index {} at {} is out of range [{}, {}) of axis {}", value, to_string(at), least, n, axis));
  };
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (indices.dtype() == DType::U64 && out[i] < 0) fail(i, std::to_string(std::uint64_t(out[i])));
    if (out[i] < least || out[i] >= n) fail(i, std::to_string(out[i]));
    if (out[i] < 0) out[i] += n;
  }
  return out;
}

// The shape of the slices of `x` at `indices`.
static Shape taken_shape(const Shape& x, const Shape& indices, int axis) {
  Shape out(x.begin(), x.begin() + axis);
  out.insert(out.end(), indices.begin(), indices.end());
  out.insert(out.end(), x.begin() + axis + 1, x.end());
  return out;
}

constexpr OpDef gather_rules = {
    .infer = [](const TypeArgs& t) -> Type {
      check_indices(t.in[1].dtype);
      int axis = normalize_axis(t.attrs.as<AxisAttrs>().axis, int(t.in[0].shape.size()));
      return {t.in[0].dtype, taken_shape(t.in[0].shape, t.in[1].shape, axis)};
    },
    .eval =
        [](const EvalArgs& e) {
          auto& x = e.in[0];
          int axis = normalize_axis(e.attrs.as<AxisAttrs>().axis, int(x.shape().size()));
          AxisView view(x.shape(), axis);
          auto indices = read_indices(e.in[1], view.n, axis);
          Array out(e.dtype, e.shape);
          std::size_t width = std::size_t(view.inner) * size_of(e.dtype);
          std::byte* to = out.bytes();
          for (std::int64_t i = 0; width && i < view.outer; ++i)
            for (auto index : indices)
              std::memcpy(to, x.bytes() + std::size_t(i * view.n + index) * width, width), to += width;
          return out;
        },
    .grad = GRAD(scatter(full_like(x, 0), b, dy, attrs.as<AxisAttrs>().axis, ScatterMode::Add)),
};

// ---------------------------------------------------------------------------------------------- scatter

static void check_scatter(const TypeArgs& t) {
  check_indices(t.in[1].dtype);
  if (t.in[2].dtype != t.in[0].dtype)
    throw UserError(fmt::format("updates need the dtype of x: got {}, expected {}", to_string(t.in[2].dtype),
                                to_string(t.in[0].dtype)));
  if (t.attrs.as<ScatterAttrs>().mode == ScatterMode::Add && !is_int(t.in[0].dtype) && !is_float(t.in[0].dtype))
    throw UserError(fmt::format("adding needs numbers, got {}", to_string(t.in[0].dtype)));
}

// x with element from(i) of updates written at element i, for each (i, from) that `places` gives, in its order.
// Additions are wide and rounded once.
template <class Places>
static Array write_elements(const EvalArgs& e, Places&& places) {
  const Array &x = e.in[0], &updates = e.in[2];
  if (e.attrs.as<ScatterAttrs>().mode == ScatterMode::Set) {
    Array out = x.clone();
    std::size_t width = size_of(e.dtype);
    places([&](std::int64_t to, std::int64_t from) {
      std::memcpy(out.bytes() + std::size_t(to) * width, updates.bytes() + std::size_t(from) * width, width);
    });
    return out;
  }
  auto add = [&]<class T>(T) {
    Array out = x.cast(dtype_of<T>()).clone(), more = updates.cast(dtype_of<T>());
    auto sums = out.template values<T>(), values = more.template values<T>();
    places([&](std::int64_t to, std::int64_t from) { sums[std::size_t(to)] += values[std::size_t(from)]; });
    return out.cast(e.dtype);
  };
  return is_float(e.dtype) ? add(double()) : add(std::uint64_t());  // unsigned: integers wrap
}

// Which updates stay: an index may stand several times, and the last is written last.
static Node stays(Node x, Node indices, int axis) {
  Node flat = reshape(indices, {count(indices.shape())});
  Node order = iota(x.graph(), flat.shape(), 0, DType::I64);
  Node last = scatter(full(x.graph(), -1, {DType::I64, {x.dim(axis)}}), flat, order, 0, ScatterMode::Set);
  Node mask = reshape(gather(last, flat, 0) == order, indices.shape());
  Shape shape = indices.shape();
  for (int d = normalize_axis(axis, x.rank()) + 1; d < x.rank(); ++d) shape.push_back(1);
  return reshape(mask, shape);
}

static Nodes scatter_grad(const GradArgs& g) {
  auto& a = g.attrs.as<ScatterAttrs>();
  Node taken = gather(g.dy, g.b, a.axis);
  if (a.mode == ScatterMode::Add) return {g.dy, none, taken};
  return {scatter(g.dy, g.b, full_like(g.c, 0), a.axis, ScatterMode::Set), none,
          where(stays(g.x, g.b, a.axis), taken, 0)};
}

constexpr OpDef scatter_rules = {
    .amp = AmpClass::Reduction,
    .infer = [](const TypeArgs& t) -> Type {
      check_scatter(t);
      int axis = normalize_axis(t.attrs.as<ScatterAttrs>().axis, int(t.in[0].shape.size()));
      Shape taken = taken_shape(t.in[0].shape, t.in[1].shape, axis);
      if (t.in[2].shape != taken)
        throw UserError(
            fmt::format("updates have the shape {}, expected {}", to_string(t.in[2].shape), to_string(taken)));
      return t.in[0];
    },
    .eval =
        [](const EvalArgs& e) {
          int axis = normalize_axis(e.attrs.as<ScatterAttrs>().axis, int(e.shape.size()));
          AxisView view(e.shape, axis);
          auto indices = read_indices(e.in[1], view.n, axis);
          return write_elements(e, [&](auto write) {
            std::int64_t from = 0;
            for (std::int64_t o = 0; o < view.outer; ++o)
              for (auto index : indices)
                for (std::int64_t i = 0; i < view.inner; ++i) write((o * view.n + index) * view.inner + i, from++);
          });
        },
    .grad = scatter_grad,
};

// ---------------------------------------------------------------------------------------------- single elements

// The shape of indices lies inside that of another tensor, but for the axis that the index says.
static void check_inside(const Shape& indices, const Shape& shape, int axis, std::string_view what) {
  bool fits = indices.size() == shape.size();
  for (std::size_t d = 0; fits && d < shape.size(); ++d) fits = int(d) == axis || !is_negative(shape[d] - indices[d]);
  if (!fits)
    throw UserError(fmt::format("indices {} do not lie inside {} {}{}", to_string(indices), what, to_string(shape),
                                axis < 0 ? "" : fmt::format(" beside axis {}", axis)));
}

// Calls f(offset in a tensor of `shape`, coordinates, number of the index) for each index in order.
template <class F>
static void for_each_index(const Array& indices, const Extents& shape, int axis, bool wrap, F&& f) {
  auto places = read_indices(indices, shape[std::size_t(axis)], axis, wrap);
  for_each_coords(indices.shape(), [&](Coords at, std::int64_t i) {
    Coords from = at;
    from[std::size_t(axis)] = places[std::size_t(i)];
    f(offset_of(from, shape), at, i);
  });
}

constexpr OpDef gather_elements_rules = {
    .infer = [](const TypeArgs& t) -> Type {
      check_indices(t.in[1].dtype);
      check_inside(t.in[1].shape, t.in[0].shape,
                   normalize_axis(t.attrs.as<GatherElementsAttrs>().axis, int(t.in[0].shape.size())), "x");
      return {t.in[0].dtype, t.in[1].shape};
    },
    .eval =
        [](const EvalArgs& e) {
          int axis = normalize_axis(e.attrs.as<GatherElementsAttrs>().axis, int(e.shape.size()));
          check_inside(to_shape(e.shape), to_shape(e.in[0].shape()), axis, "x");
          Array out(e.dtype, e.shape);
          std::size_t width = size_of(e.dtype);
          bool wrap = e.attrs.as<GatherElementsAttrs>().wrap;
          for_each_index(e.in[1], e.in[0].shape(), axis, wrap, [&](std::int64_t from, const Coords&, std::int64_t i) {
            std::memcpy(out.bytes() + std::size_t(i) * width, e.in[0].bytes() + std::size_t(from) * width, width);
          });
          return out;
        },
    .grad = GRAD(scatter_elements(full_like(x, 0), b, dy, attrs.as<GatherElementsAttrs>().axis, ScatterMode::Add)),
};

// Zeros for what of the updates no index reaches.
static Node pad_to(Node x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Shape low(shape.size(), 0), high;
  for (std::size_t d = 0; d < shape.size(); ++d) high.push_back(shape[d] - x.shape()[d]);
  return pad(x, low, high, 0);
}

static Nodes scatter_elements_grad(const GradArgs& g) {
  auto& a = g.attrs.as<ScatterAttrs>();
  Node taken = gather_elements(g.dy, g.b, a.axis, true);
  if (a.mode == ScatterMode::Add) return {g.dy, none, pad_to(taken, g.c.shape())};
  Node zeros = full(g.y.graph(), 0, {g.y.dtype(), g.b.shape()});
  Node order = reshape(iota(g.y.graph(), {count(g.b.shape())}, 0, DType::I64), g.b.shape());
  Node last = scatter_elements(full(g.y.graph(), -1, {DType::I64, g.y.shape()}), g.b, order, a.axis, ScatterMode::Set);
  Node stays = gather_elements(last, g.b, a.axis, true) == order;  // an index may stand several times; the last one is kept
  return {scatter_elements(g.dy, g.b, zeros, a.axis, ScatterMode::Set), none,
          pad_to(where(stays, taken, 0), g.c.shape())};
}

constexpr OpDef scatter_elements_rules = {
    .amp = AmpClass::Reduction,
    .infer = [](const TypeArgs& t) -> Type {
      check_scatter(t);
      check_inside(t.in[1].shape, t.in[0].shape,
                   normalize_axis(t.attrs.as<ScatterAttrs>().axis, int(t.in[0].shape.size())), "x");
      check_inside(t.in[1].shape, t.in[2].shape, -1, "updates");
      return t.in[0];
    },
    .eval =
        [](const EvalArgs& e) {
          int axis = normalize_axis(e.attrs.as<ScatterAttrs>().axis, int(e.shape.size()));
          check_inside(to_shape(e.in[1].shape()), to_shape(e.shape), axis, "x");
          check_inside(to_shape(e.in[1].shape()), to_shape(e.in[2].shape()), -1, "updates");
          return write_elements(e, [&](auto write) {
            for_each_index(e.in[1], e.shape, axis, true, [&](std::int64_t to, const Coords& at, std::int64_t) {
              write(to, offset_of(at, e.in[2].shape()));
            });
          });
        },
    .grad = scatter_elements_grad,
};

// ---------------------------------------------------------------------------------------------- sorting

// Stable; NaN counts as the largest.
template <class T>
static void sort_places(std::vector<std::int64_t>& places, const T* x, std::int64_t stride, bool descending) {
  auto less = [&](T a, T b) { return a < b || (a == a && b != b); };
  std::ranges::stable_sort(places, [&](std::int64_t i, std::int64_t k) {
    T a = x[i * stride], b = x[k * stride];
    return descending ? less(b, a) : less(a, b);
  });
}

constexpr OpDef argsort_rules = {
    .amp = AmpClass::Boundary,
    .infer = [](const TypeArgs& t) -> Type {
      if (t.in[0].dtype == DType::C64) throw Unsupported("complex values have no order, got c64");
      normalize_axis(t.attrs.as<SortAttrs>().axis, int(t.in[0].shape.size()));
      return {DType::I64, t.in[0].shape};
    },
    .eval =
        [](const EvalArgs& e) {
          auto& a = e.attrs.as<SortAttrs>();
          AxisView view(e.shape, normalize_axis(a.axis, int(e.shape.size())));
          Array out(DType::I64, e.shape);
          auto result = out.values<std::int64_t>();
          std::vector<std::int64_t> places(static_cast<std::size_t>(view.n));
          visit_dtype(e.in[0].dtype(), [&]<class T>(T) {
            if constexpr (!std::same_as<T, c64>)
              for (std::int64_t row = 0; row < view.outer * view.inner; ++row) {
                std::int64_t first = row / view.inner * view.n * view.inner + row % view.inner;
                std::iota(places.begin(), places.end(), 0);
                sort_places(places, e.in[0].values<T>().data() + first, view.inner, a.descending);
                for (std::int64_t k = 0; k < view.n; ++k)
                  result[std::size_t(first + k * view.inner)] = places[std::size_t(k)];
              }
          });
          return out;
        },
    .grad = GRAD(none),
};

constexpr OpDef sort_rules = {
    .body = [](Node x, const SortAttrs& a) { return gather_elements(x, argsort(x, a.axis, a.descending), a.axis, true); },
    .grad = by_body,
};

// gather checks the index and counts a negative one from the end.
static Node from_start(Node index, const Dim& n) { return gather(iota(index.graph(), {n}, 0, DType::I64), index, 0); }

constexpr OpDef one_hot_rules = {
    .body =
        [](Node indices, const OneHotAttrs& a) {
          Node hit = unsqueeze(from_start(indices, a.depth), {-1}) == iota(indices.graph(), {a.depth}, 0, DType::I64);
          return as_dtype(hit, a.dtype);
        },
    .grad = by_body,
};

constexpr OpDef size_rules = {
    .amp = AmpClass::Boundary,
    .infer = [](const TypeArgs& t) -> Type {
      normalize_axis(t.attrs.as<AxisAttrs>().axis, int(t.in[0].shape.size()));
      return {DType::I64, {}};
    },
    .eval =
        [](const EvalArgs& e) {
          auto& shape = e.in[0].shape();
          return Array(std::vector{shape[std::size_t(normalize_axis(e.attrs.as<AxisAttrs>().axis, int(shape.size())))]},
                       {});
        },
    .grad = GRAD(none),
};

// ---------------------------------------------------------------------------------------------- helpers

Nodes top_k(Node x, Dim k, int axis, bool largest) {
  axis = normalize_axis(axis, x.rank());
  if (is_negative(k) || is_negative(x.dim(axis) - k))
    throw UserError(fmt::format("[top_k] got k = {}, expected 0 to {}, the size of axis {} (of {})", k.text(),
                                x.dim(axis).text(), axis, x.text()));
  Node places = slice_axis(argsort(x, axis, largest), axis, 0, k, 1);
  return {gather_elements(x, places, axis, true), places};
}

// Coordinates in the last axis of `indices`, after the batch's own, as places in the flattened axes they run over.
static Node flat_places(Node x, Node indices, int batch_dims, std::string_view op, std::size_t& depth) {
  auto fail = [&](const std::string& why) {
    throw UserError(fmt::format("[{}] {}: got x {} and indices {}", op, why, x.text(), indices.text()));
  };
  if (indices.rank() <= batch_dims || batch_dims < 0 || !indices.dim(-1).is_number())
    fail("the last axis of the indices must have a known size and stand after the batch's");
  depth = std::size_t(batch_dims) + std::size_t(indices.dim(-1).number());
  if (depth == std::size_t(batch_dims) || depth > std::size_t(x.rank()))
    fail("the last axis of the indices must hold 1 or more coordinates, no more than x has axes");
  Shape shape(indices.shape().begin(), indices.shape().end() - 1);
  Node out = none;
  for (int d = 0; d < int(depth); ++d) {
    if (d < batch_dims && differ(x.dim(d), indices.dim(d))) fail("the batch axes differ");
    Node at = d < batch_dims
                  ? iota(x.graph(), shape, d, DType::I64)
                  : from_start(squeeze(slice_axis(indices, -1, d - batch_dims, d - batch_dims + 1, 1), {-1}), x.dim(d));
    Node n = x.dim(d).is_number() ? Node(double(x.dim(d).number())) : size(x, d);
    out = out ? out * n + at : at;
  }
  return out;
}

static Node flatten_front(Node x, std::size_t depth) {
  Shape shape(x.shape().begin() + std::ptrdiff_t(depth), x.shape().end());
  shape.insert(shape.begin(), count(Shape(x.shape().begin(), x.shape().begin() + std::ptrdiff_t(depth))));
  return reshape(x, shape);
}

Node gather_nd(Node x, Node indices, int batch_dims) {
  std::size_t depth;
  Node places = flat_places(x, indices, batch_dims, "gather_nd", depth);
  return gather(flatten_front(x, depth), places, 0);
}

Node scatter_nd(Node x, Node indices, Node updates, ScatterMode mode) {
  std::size_t depth;
  Node places = flat_places(x, indices, 0, "scatter_nd", depth);
  return reshape(scatter(flatten_front(x, depth), places, updates, 0, mode), x.shape());
}

#define INDEX(...) DEFINE_OP(Index, __VA_ARGS__)
#define INDEX_BY(...) DEFINE_OP(Composite, __VA_ARGS__)
#include "ops/ops.def"

}  // namespace rlx
