// Ops that read or write at computed places. An index outside its range is an error; a negative one counts from the
// end.
#include <fmt/format.h>

#include "ops/rules.h"

namespace rlx {

std::span<const std::string_view> enum_names(ScatterMode) {
  static constexpr std::string_view kNames[] = {"set", "add"};
  return kNames;
}

static void check_indices(DType dtype) {
  if (!is_int(dtype)) throw UserError(fmt::format("indices must be integers, got {}", to_string(dtype)));
}

// The indices counted from 0; throws UserError that names one outside.
static std::vector<std::int64_t> read_indices(const Array& indices, std::int64_t n, int axis) {
  std::vector<std::int64_t> out = indices.to_vector<std::int64_t>();
  auto fail = [&](std::size_t i, const std::string& value) {
    Coords at;
    for_each_coords(indices.shape(), [&](const Coords& c, std::int64_t k) {
      if (k == std::int64_t(i)) at = c;
    });
    throw UserError(
        fmt::format("index {} at {} is out of range [{}, {}) of axis {}", value, to_string(at), -n, n, axis));
  };
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (indices.dtype() == DType::U64 && out[i] < 0) fail(i, std::to_string(std::uint64_t(out[i])));
    if (out[i] < -n || out[i] >= n) fail(i, std::to_string(out[i]));
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
    .grad = GRAD(scatter(zeros_like(x), b, dy, attrs.as<AxisAttrs>().axis, ScatterMode::Add)),
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
  return {scatter(g.dy, g.b, zeros_like(g.c), a.axis, ScatterMode::Set), none,
          where(stays(g.x, g.b, a.axis), taken, 0)};
}

constexpr OpDef scatter_rules = {
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

constexpr OpDef size_rules = {
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

#define INDEX(...) DEFINE_OP(Index, __VA_ARGS__)
#define INDEX_BY(...) DEFINE_OP(Composite, __VA_ARGS__)
#include "ops/ops.def"

}  // namespace rlx
