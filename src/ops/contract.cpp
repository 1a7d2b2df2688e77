// Products that sum over shared axes: matmul, and dot_general in terms of it.
#include <fmt/format.h>

#include <algorithm>

#include "base/parallel.h"
#include "ops/define.h"
#include "ops/eval.h"

namespace rlx {
namespace {

// ---------------------------------------------------------------------------------------------- matmul

// NumPy's reading of the operands: a vector on the left is a row, one on the right a column, and that axis is then
// left out of the result.
template <class T>
struct MatmulSizes {
  std::vector<T> a_batch, b_batch;
  T m, k, b_k, n;
};
template <class T>
MatmulSizes<T> matmul_sizes(const std::vector<T>& a, const std::vector<T>& b) {
  MatmulSizes<T> s;
  s.m = a.size() == 1 ? T(1) : a[a.size() - 2];
  s.k = a.back();
  s.b_k = b.size() == 1 ? b[0] : b[b.size() - 2];
  s.n = b.size() == 1 ? T(1) : b.back();
  if (a.size() > 2) s.a_batch.assign(a.begin(), a.end() - 2);
  if (b.size() > 2) s.b_batch.assign(b.begin(), b.end() - 2);
  return s;
}

DType product_dtype(const TypeArgs& t, DType wanted) {
  DType common = promote(t.in[0].dtype, t.in[1].dtype);
  if (!is_int(common) && !is_float(common))
    throw UserError(fmt::format("needs numbers, got {} and {}", to_string(t.in[0].dtype), to_string(t.in[1].dtype)));
  if (wanted == DType::Any) return common;
  if (!is_float(wanted) && (is_float(common) || !is_int(wanted)))
    throw UserError(fmt::format("a product of {} and {} cannot be given as {}", to_string(t.in[0].dtype),
                                to_string(t.in[1].dtype), to_string(wanted)));
  return wanted;
}

Type infer_matmul(const TypeArgs& t) {
  auto &a = t.in[0].shape, &b = t.in[1].shape;
  DType dtype = product_dtype(t, t.attrs.as<MatmulAttrs>().dtype);
  if (a.empty() || b.empty())
    throw UserError(fmt::format("needs operands of rank 1 or more, got {} and {}: multiply by a scalar with mul",
                                to_string(a), to_string(b)));
  auto s = matmul_sizes(a, b);
  if (s.k != s.b_k)
    throw UserError(fmt::format("inner sizes differ: got {} and {}, expected {} = {}", to_string(a), to_string(b),
                                s.k.text(), s.b_k.text()));
  Shape out = broadcast(s.a_batch, s.b_batch);
  if (a.size() > 1) out.push_back(s.m);
  if (b.size() > 1) out.push_back(s.n);
  return {dtype, out};
}

template <class T>
Array multiply(const EvalArgs& e) {
  Array a = e.in[0].cast(dtype_of<T>()), b = e.in[1].cast(dtype_of<T>());
  auto s = matmul_sizes(a.shape(), b.shape());
  std::vector<std::pair<std::int64_t, std::int64_t>> matrices;  // which of a and of b give each of the result
  for_each_coords(to_extents(broadcast(to_shape(s.a_batch), to_shape(s.b_batch))), [&](const Coords& at, std::int64_t) {
    matrices.emplace_back(offset_of(at, s.a_batch), offset_of(at, s.b_batch));
  });
  Array out(dtype_of<T>(), e.shape);
  const T *left = a.template values<T>().data(), *right = b.template values<T>().data();
  T* result = out.template values<T>().data();
  parallel_for(std::int64_t(matrices.size()) * s.m, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      auto [ma, mb] = matrices[std::size_t(r / s.m)];
      const T* row = left + (ma * s.m + r % s.m) * s.k;
      T* to = result + r * s.n;
      for (std::int64_t k = 0; k < s.k; ++k) {
        const T* from = right + (mb * s.k + k) * s.n;
        for (std::int64_t n = 0; n < s.n; ++n) to[n] += row[k] * from[n];
      }
    }
  });
  return out;
}

Array eval_matmul(const EvalArgs& e) {
  DType common = promote(e.in[0].dtype(), e.in[1].dtype());
  if (is_float(common)) return multiply<double>(e).cast(e.dtype);
  Array exact = multiply<std::uint64_t>(e);  // wraps where signed numbers would overflow; the bits are the same
  return is_signed_int(common) ? exact.cast(DType::I64).cast(e.dtype) : exact.cast(e.dtype);
}

Nodes grad_matmul(const GradArgs& g) {
  auto s = matmul_sizes(g.a.shape(), g.b.shape());
  Shape batch = broadcast(s.a_batch, s.b_batch);
  auto batched = [&](std::initializer_list<Dim> last) {
    Shape out = batch;
    out.insert(out.end(), last);
    return out;
  };
  Node a = g.a.rank() == 1 ? reshape(g.a, {1, s.k}) : g.a, b = g.b.rank() == 1 ? reshape(g.b, {s.k, 1}) : g.b;
  Node dy = g.a.rank() == 1 || g.b.rank() == 1 ? reshape(g.dy, batched({s.m, s.n})) : g.dy;
  Node da = matmul(dy, swap_last(b), DType::Any), db;
  if (b.rank() == 2 && a.rank() > 2) {  // one matrix for the whole batch: one product over all its rows
    Dim rows = count(batch) * s.m;
    db = matmul(swap_last(reshape(a, {rows, s.k})), reshape(dy, {rows, s.n}), DType::Any);
  } else {
    db = matmul(swap_last(a), dy, DType::Any);
  }
  if (g.a.rank() == 1) da = reshape(da, batched({s.k}));
  if (g.b.rank() == 1) db = reshape(db, db.rank() == 2 ? Shape{s.k} : batched({s.k}));
  return {da, db};  // the sweep sums over batch axes that were broadcast
}

// ---------------------------------------------------------------------------------------------- dot_general

// The axes of one operand in the roles they play; `free` are the rest, in order.
struct Roles {
  Axes batch, contract, free;
};
Roles roles_of(const char* side, Node x, const Axes& batch, const Axes& contract) {
  Roles r;
  Axes used;
  for (auto [from, to] : {std::pair{&batch, &r.batch}, {&contract, &r.contract}})
    for (int axis : *from) {
      to->push_back(normalize_axis(axis, x.rank()));
      if (std::ranges::find(used, to->back()) != used.end())
        throw UserError(fmt::format("axis {} of {} stands twice among its batch and contract axes", axis, side));
      used.push_back(to->back());
    }
  for (int d = 0; d < x.rank(); ++d)
    if (std::ranges::find(used, d) == used.end()) r.free.push_back(d);
  return r;
}
Axes joined(std::initializer_list<const Axes*> parts) {
  Axes out;
  for (auto* part : parts) out.insert(out.end(), part->begin(), part->end());
  return out;
}
Dim product(Node x, const Axes& axes) {
  Shape sizes;
  for (int axis : axes) sizes.push_back(x.dim(axis));
  return count(sizes);
}
void check_pairs(const char* what, Node a, Node b, const Axes& lhs, const Axes& rhs) {
  if (lhs.size() != rhs.size())
    throw UserError(fmt::format("got {} {} axes of lhs and {} of rhs, expected as many", lhs.size(), what, rhs.size()));
  for (std::size_t i = 0; i < lhs.size(); ++i)
    if (a.dim(lhs[i]) != b.dim(rhs[i]))
      throw UserError(fmt::format("{} axes {} of {} and {} of {} differ: {} and {}", what, lhs[i], to_string(a.shape()),
                                  rhs[i], to_string(b.shape()), a.dim(lhs[i]).text(), b.dim(rhs[i]).text()));
}

Node dot_general_body(Node a, Node b, const DotGeneralAttrs& attrs) {
  Roles l = roles_of("lhs", a, attrs.lhs_batch, attrs.lhs_contract),
        r = roles_of("rhs", b, attrs.rhs_batch, attrs.rhs_contract);
  check_pairs("batch", a, b, l.batch, r.batch);
  check_pairs("contract", a, b, l.contract, r.contract);
  Shape out, batch;
  for (int axis : l.batch) batch.push_back(a.dim(axis));
  auto matrices = [&](Dim rows, Dim columns) {
    Shape shape = batch;
    shape.insert(shape.end(), {rows, columns});
    return shape;
  };
  Node left = reshape(transpose(a, joined({&l.batch, &l.free, &l.contract})),
                      matrices(product(a, l.free), product(a, l.contract)));
  Node right = reshape(transpose(b, joined({&r.batch, &r.contract, &r.free})),
                       matrices(product(b, r.contract), product(b, r.free)));
  out = batch;
  for (int axis : l.free) out.push_back(a.dim(axis));
  for (int axis : r.free) out.push_back(b.dim(axis));
  return reshape(matmul(left, right, DType::Any), out);
}

}  // namespace

constexpr OpDef matmul_rules = {.infer = infer_matmul, .eval = eval_matmul, .grad = grad_matmul};
constexpr OpDef dot_general_rules = {
    .amp = AmpClass::Compute,
    .body = [](Node a, Node b, const DotGeneralAttrs& attrs) { return dot_general_body(a, b, attrs); },
    .grad = by_body,
};

#define CONTRACT(...) DEFINE_OP(Contract, __VA_ARGS__)
#define CONTRACT_BY(...) DEFINE_OP(Composite, __VA_ARGS__)
#include "ops/ops.def"

}  // namespace rlx
