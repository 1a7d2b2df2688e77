// Reductions and scans.
#include <fmt/format.h>

#include "base/sum.h"
#include "ops/rules.h"

namespace rlx {

// A reduced value back over the axes that were reduced.
static Node stretch(Node reduced, Node x, const Attrs& attrs) {
  auto& a = attrs.as<ReduceAttrs>();
  return expand(reshape(reduced, reduced_shape(x.shape(), a.axes, true)), x.shape());
}

// The sum of trailing axes of a float, in the order that every backend keeps; none where this is another sum.
static std::optional<Array> sum_rows(const EvalArgs& e) {
  auto& x = e.in[0];
  Axes axes = normalize_axes(e.attrs.as<ReduceAttrs>().axes, int(x.shape().size()));
  std::int64_t n = 1;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != int(x.shape().size() - axes.size() + i)) return {};
    n *= x.shape()[std::size_t(axes[i])];
  }
  Array out(DType::F64, e.shape);
  auto sums = out.values<double>();
  return visit_dtype(x.dtype(), [&]<class T>(T) -> std::optional<Array> {
    if constexpr (is_float(dtype_of<T>())) {
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = sum_f64(x.values<T>().data() + i * std::size_t(n), n);
      return out.cast(e.dtype);
    } else {
      return {};
    }
  });
}

constexpr OpDef sum_rules = {
    .formula = formula<2, DTypes::Number>([](auto a, auto b) { return a + b; }),
    .init = 0,
    .eval =
        [](const EvalArgs& e) {
          if (auto rows = sum_rows(e)) return *rows;
          return evaluate_fold(e);
        },
    .grad = GRAD(stretch(dy, x, attrs)),
};

// Those of x that are the result share its cotangent.
static Node extreme_grad(Node x, Node y, Node dy, const Attrs& attrs) {
  Node hit = x == stretch(y, x, attrs);
  auto& a = attrs.as<ReduceAttrs>();
  Node hits = sum(cast(hit, x.dtype()), a.axes, a.keepdims);
  return where(hit, stretch(dy / hits, x, attrs), 0);
}

constexpr OpDef max_rules = {
    .formula = formula<2, DTypes::Number>([](auto a, auto b) { return scalar::maximum(a, b); }),
    .init = -std::numeric_limits<double>::infinity(),
    .grad = GRAD(extreme_grad(x, y, dy, attrs)),
};

constexpr OpDef min_rules = {
    .formula = formula<2, DTypes::Number>([](auto a, auto b) { return scalar::minimum(a, b); }),
    .init = std::numeric_limits<double>::infinity(),
    .grad = GRAD(extreme_grad(x, y, dy, attrs)),
};

// The product of the others is that of those before times that of those after: no division, so zeros are exact.
static Node prod_grad(Node x, Node dy, const Attrs& attrs) {
  Axes reduced = normalize_axes(attrs.as<ReduceAttrs>().axes, x.rank()), perm, back(std::size_t(x.rank()));
  for (int d = 0; d < x.rank(); ++d)
    if (!std::ranges::binary_search(reduced, d)) perm.push_back(d);
  Shape kept = reduced_shape(x.shape(), reduced, false), rows = kept;
  perm.insert(perm.end(), reduced.begin(), reduced.end());
  for (int d = 0; d < x.rank(); ++d) back[std::size_t(perm[std::size_t(d)])] = d;
  Node moved = transpose(x, perm);
  Dim n = 1;
  for (int axis : reduced) n = n * x.dim(axis);
  rows.push_back(n);
  Node row = reshape(moved, rows);
  rows.back() = 1;
  Node others = cumprod(row, -1, true, false) * cumprod(row, -1, true, true);
  return transpose(reshape(others * reshape(dy, rows), moved.shape()), back);
}

constexpr OpDef prod_rules = {
    .formula = formula<2, DTypes::Number>([](auto a, auto b) { return a * b; }),
    .init = 1,
    .grad = GRAD(prod_grad(x, dy, attrs)),
};

static Type infer_test(const TypeArgs& t) {
  if (!is_int(t.in[0].dtype) && t.in[0].dtype != DType::Bool)
    throw UserError(fmt::format("needs an integer or bool, got {}", to_string(t.in[0].dtype)));
  auto& a = t.attrs.as<ReduceAttrs>();
  return {DType::Bool, reduced_shape(t.in[0].shape, a.axes, a.keepdims)};
}

constexpr OpDef any_rules = {
    .dtypes = DTypes::Int,
    .infer = infer_test,
    .formula = formula<2, DTypes::Int>([](auto a, auto b) { return a || b; }),
    .init = 0,
    .grad = GRAD(none),
};

constexpr OpDef all_rules = {
    .dtypes = DTypes::Int,
    .infer = infer_test,
    .formula = formula<2, DTypes::Int>([](auto a, auto b) { return a && b; }),
    .init = 1,
    .grad = GRAD(none),
};

// ---------------------------------------------------------------------------------------------- mean

// How many elements of x go into one of the result.
static Node reduced_count(Node x, const Axes& axes, DType dtype) {
  double known = 1;
  Node out = none;
  for (int axis : normalize_axes(axes, x.rank())) {
    if (x.dim(axis).is_number()) {
      known *= double(x.dim(axis).number());
    } else {
      Node n = cast(size(x, axis), dtype);
      out = out ? out * n : n;
    }
  }
  Node number = x.graph().constant(known, dtype);
  return out ? out * number : number;
}

constexpr OpDef mean_rules = {
    .amp = AmpClass::Reduction,
    .body =
        [](Node x, const ReduceAttrs& attrs) {
          if (!is_float(x.dtype()))
            throw UserError(fmt::format("needs a float, got {} (cast it first)", to_string(x.dtype())));
          DType wide = x.dtype() == DType::F64 ? DType::F64 : DType::F32;  // a sum may be too large for 16 bits
          Node total = sum(as_dtype(x, wide), attrs.axes, attrs.keepdims);
          return as_dtype(total / reduced_count(x, attrs.axes, wide), x.dtype());
        },
    .grad = by_body,
};

// ---------------------------------------------------------------------------------------------- argmax, argmin

static void need_real(DType dtype) {
  if (dtype == DType::C64) throw Unsupported("complex values can only be moved, got c64");
}

static Type infer_arg(const TypeArgs& t) {
  auto& a = t.attrs.as<ArgAttrs>();
  need_real(t.in[0].dtype);
  int axis = normalize_axis(a.axis, int(t.in[0].shape.size()));
  if (t.in[0].shape[std::size_t(axis)] == Dim(0))
    throw UserError(fmt::format("axis {} of {} has no elements to choose from", axis, to_string(t.in[0].shape)));
  return {DType::I64, reduced_shape(t.in[0].shape, {axis}, a.keepdims)};
}

// Calls f with a value of the type that `dtype` is computed in.
template <class F>
static auto visit_wide(DType dtype, F&& f) {
  if (is_float(dtype)) return f(double());
  return is_unsigned_int(dtype) ? f(std::uint64_t()) : f(std::int64_t());
}

// The first element that no other beats; NaN beats everything else.
template <bool largest>
static Array eval_arg(const EvalArgs& e) {
  auto& x = e.in[0];
  int axis = normalize_axis(e.attrs.as<ArgAttrs>().axis, int(x.shape().size()));
  AxisView view(x.shape(), axis);
  if (view.n == 0)
    throw UserError(fmt::format("axis {} of {} has no elements to choose from", axis, to_string(x.shape())));
  Array out(DType::I64, e.shape);
  auto places = out.values<std::int64_t>();
  visit_wide(x.dtype(), [&]<class T>(T) {
    Array wide = x.cast(dtype_of<T>());
    auto values = wide.values<T>();
    for (std::size_t i = 0; i < places.size(); ++i) {
      std::int64_t first = std::int64_t(i) / view.inner * view.n * view.inner + std::int64_t(i) % view.inner;
      auto at = [&](std::int64_t k) { return values[std::size_t(first + k * view.inner)]; };
      std::int64_t best = 0;
      for (std::int64_t k = 1; k < view.n && at(best) == at(best); ++k)
        if ((largest ? at(k) > at(best) : at(k) < at(best)) || at(k) != at(k)) best = k;
      places[i] = best;
    }
  });
  return out;
}

constexpr OpDef argmax_rules = {.infer = infer_arg, .eval = eval_arg<true>, .grad = GRAD(none)};
constexpr OpDef argmin_rules = {.infer = infer_arg, .eval = eval_arg<false>, .grad = GRAD(none)};

// ---------------------------------------------------------------------------------------------- cumsum, cumprod

static Type infer_scan(const TypeArgs& t) {
  DType d = t.in[0].dtype;
  need_real(d);
  if (!is_int(d) && !is_float(d)) throw UserError(fmt::format("needs a number, got {}", to_string(d)));
  normalize_axis(t.attrs.as<CumulativeAttrs>().axis, int(t.in[0].shape.size()));
  return t.in[0];
}

// Accumulates wide; each element is rounded once.
template <bool product>
static Array eval_scan(const EvalArgs& e) {
  auto& a = e.attrs.as<CumulativeAttrs>();
  AxisView view(e.shape, normalize_axis(a.axis, int(e.shape.size())));
  auto scan = [&]<class T>(T) {
    Array out = e.in[0].cast(dtype_of<T>()).clone();
    auto values = out.values<T>();
    for (std::int64_t row = 0; row < view.outer * view.inner; ++row) {
      std::int64_t first = row / view.inner * view.n * view.inner + row % view.inner;
      T total = product ? 1 : 0;
      for (std::int64_t k = 0; k < view.n; ++k) {
        T& value = values[std::size_t(first + (a.reverse ? view.n - 1 - k : k) * view.inner)];
        T before = total;
        total = product ? total * value : total + value;
        value = a.exclusive ? before : total;
      }
    }
    return out.cast(e.dtype);
  };
  return is_float(e.dtype) ? scan(double()) : scan(std::uint64_t());  // unsigned: integers wrap
}

static Node cumsum_grad(Node dy, const CumulativeAttrs& a) { return cumsum(dy, a.axis, a.exclusive, !a.reverse); }

// The derivative of the product at k by element i is that of the other elements in it: the scan, along k, of x with a 1
// in place of element i. A new axis holds i.
static Node cumprod_grad(Node x, Node dy, const CumulativeAttrs& a) {
  int i = normalize_axis(a.axis, x.rank()), k = i + 1;
  Shape pairs = x.shape(), plane{x.dim(i), x.dim(i)};
  pairs.insert(pairs.begin() + i, x.dim(i));
  Node row = iota(x.graph(), plane, 0, DType::I64), column = iota(x.graph(), plane, 1, DType::I64);
  Node inside = a.reverse ? (a.exclusive ? column < row : column <= row) : (a.exclusive ? column > row : column >= row);
  Shape over(std::size_t(x.rank() + 1 - i), 1);
  over[0] = over[1] = x.dim(i);
  Node others = where(reshape(row == column, over), 1, expand(unsqueeze(x, {i}), pairs));
  Node products = cumprod(others, k, a.exclusive, a.reverse);
  return sum(where(reshape(inside, over), products * unsqueeze(dy, {i}), 0), {k}, false);
}

constexpr OpDef cumsum_rules = {
    .infer = infer_scan, .eval = eval_scan<false>, .grad = GRAD(cumsum_grad(dy, attrs.as<CumulativeAttrs>()))};
constexpr OpDef cumprod_rules = {
    .infer = infer_scan, .eval = eval_scan<true>, .grad = GRAD(cumprod_grad(x, dy, attrs.as<CumulativeAttrs>()))};

#define REDUCE(...) DEFINE_OP(Reduce, __VA_ARGS__)
#define REDUCE_BY(...) DEFINE_OP(Composite, __VA_ARGS__)
#include "ops/ops.def"

}  // namespace rlx
