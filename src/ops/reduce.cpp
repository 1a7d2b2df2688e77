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

#define REDUCE(...) DEFINE_OP(Reduce, __VA_ARGS__)
#define REDUCE_BY(...) DEFINE_OP(Composite, __VA_ARGS__)
#include "ops/ops.def"

}  // namespace rlx
