// Ops that are one call of a kernel: matrix products.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "backends/cpu/gemm.h"
#include "backends/cpu/planner.h"

namespace rlx::cpu {
namespace {

// A matrix operand of gemm: one of its last two strides is 1.
bool is_matrix(const View& v) {
  std::size_t r = v.shape.size();
  auto unit = [&](std::size_t d) { return v.shape[d] == 1 || v.strides[d] == 1; };
  return (unit(r - 1) && (v.strides[r - 2] > 0 || v.shape[r - 2] == 1)) || (unit(r - 2) && (v.strides[r - 1] > 0 || v.shape[r - 1] == 1));
}

// Row and column stride with a size-1 axis given whatever stride keeps gemm's rule.
std::pair<std::int64_t, std::int64_t> matrix_strides(const View& v) {
  std::size_t r = v.shape.size();
  std::int64_t row = v.strides[r - 2], col = v.strides[r - 1], rows = v.shape[r - 2], cols = v.shape[r - 1];
  if (row != 1 && col != 1) {
    if (cols == 1) col = 1, row = rows == 1 ? 1 : row;
    else if (rows == 1) row = 1;
  }
  if (rows == 1 && col == 1) row = std::max<std::int64_t>(row, cols);
  if (cols == 1 && row == 1) col = std::max<std::int64_t>(col, rows);
  return {row, col};
}

struct Product {
  GemmArgs args;
  View a, b, c;
  std::vector<std::array<std::int64_t, 3>> offsets;  // of a, b, c for each call
};

// Turns batch axes into the two that gemm loops over and a list of offsets for the rest.
void plan_batch(Product& p, const Extents& batch) {
  auto stride = [](const View& v, std::size_t d) { return v.shape[d] == 1 ? 0 : v.strides[d]; };
  std::vector<std::size_t> axes;  // of more than one item
  for (std::size_t d = 0; d < batch.size(); ++d)
    if (batch[d] != 1) axes.push_back(d);
  auto take = [&](std::int64_t& size, std::int64_t& a, std::int64_t& b, std::int64_t& c) {
    if (axes.empty()) return;
    std::size_t d = axes.back();
    axes.pop_back();
    size = batch[d], a = stride(p.a, d), b = stride(p.b, d), c = stride(p.c, d);
  };
  take(p.args.batch, p.args.a_batch, p.args.b_batch, p.args.c_batch);
  take(p.args.outer, p.args.a_outer, p.args.b_outer, p.args.c_outer);
  std::int64_t rest = 1;
  for (auto d : axes) rest *= batch[d];
  for (std::int64_t i = 0; i < rest; ++i) {
    std::array<std::int64_t, 3> at{};
    std::int64_t left = i;
    for (std::size_t k = axes.size(); k-- > 0; left /= batch[axes[k]]) {
      std::int64_t j = left % batch[axes[k]];
      at[0] += j * stride(p.a, axes[k]), at[1] += j * stride(p.b, axes[k]), at[2] += j * stride(p.c, axes[k]);
    }
    p.offsets.push_back(at);
  }
}

// What gemm multiplies in: f16 goes through f32.
bool is_product_dtype(DType a, DType b, DType out) {
  if (a == DType::I8 && b == DType::I8) return out == DType::I32;
  auto narrow = [](DType d) { return d == DType::F32 || d == DType::BF16 || d == DType::F16; };
  return narrow(a) && narrow(b) && narrow(out);
}

// A vector is a row on the left and a column on the right.
View as_matrix(View v, bool left) {
  if (v.shape.size() != 1) return v;
  if (left) v.shape.insert(v.shape.begin(), 1), v.strides.insert(v.strides.begin(), v.shape[1]);
  else v.shape.push_back(1), v.strides.push_back(1);
  return v;
}

}  // namespace

// An operand in the dtype that the product is taken in: its own, or f32.
View Planner::product_operand(Node m, DType dtype) { return m.dtype() == dtype ? memory(m) : f32_memory(m); }

// A program that copies one dtype into another.
void Planner::convert(const View& from, DType from_dtype, const View& to, DType to_dtype, bool kept) {
  std::int64_t columns = from.shape.empty() ? 1 : from.shape.back();
  Group& g = new_group(count(from.shape) / columns, columns, kept);
  g.open = false;
  g.name = fmt::format("{} to {}", to_string(from_dtype), to_string(to_dtype));
  g.extra_stores.push_back({load(g, from, from_dtype, from.shape), make_access(to, to_dtype)});
  g.writes.insert(to.buffer);
}

// c = a · b over batch axes that both views have; a and b are [batch…, m, k] and [batch…, k, n].
void Planner::add_product(Node n, DType dtype, View a, View b, const Extents& batch) {
  std::int64_t m = a.shape[a.shape.size() - 2], k = a.shape.back(), columns = b.shape.back();
  Extents c_shape = batch;
  c_shape.push_back(m), c_shape.push_back(columns);
  View sums = dtype == DType::I8 ? storage(n) : f32_storage(n);  // a 16-bit result is rounded once, from f32
  auto laid = reshape_view(sums, c_shape);
  if (!laid || (columns != 1 && laid->strides.back() != 1)) throw InternalError("the memory of a product does not fit: " + n.text());
  View c = *laid;
  if (!is_matrix(a)) a = copied(a, dtype, at(n).kept);
  if (!is_matrix(b)) b = copied(b, dtype, at(n).kept);
  auto product = std::make_shared<Product>();
  product->a = a, product->b = b, product->c = c;
  GemmArgs& g = product->args;
  g.a_type = g.b_type = dtype;
  g.m = m, g.n = columns, g.k = k;
  std::tie(g.a_row, g.a_col) = matrix_strides(a);
  std::tie(g.b_row, g.b_col) = matrix_strides(b);
  g.c_row = m == 1 ? columns : c.strides[c.strides.size() - 2];
  plan_batch(*product, batch);
  std::int64_t width = std::int64_t(size_of(dtype));
  add_step({.name = fmt::format("gemm {} {}{}x{}x{} {}", to_string(dtype), batch.empty() ? "" : to_string(batch) + " ", m, columns, k, label_of(n)),
            .reads = {a.buffer, b.buffer}, .writes = {c.buffer}, .kept = at(n).kept, .interpreted = false,
            .run = [product, width](std::byte* const* buffers) {
              GemmArgs args = product->args;
              const View &a = product->a, &b = product->b, &c = product->c;
              for (auto& offset : product->offsets) {
                args.a = buffers[a.buffer] + (a.offset + offset[0]) * width;
                args.b = buffers[b.buffer] + (b.offset + offset[1]) * width;
                args.c = buffers[c.buffer] + (c.offset + offset[2]) * 4;
                gemm(args);
              }
            }});
  if (dtype == DType::I8) at(n).ready = int(steps_.size());
  else finish_f32(n, sums);
}

bool Planner::plan_matmul(Node n) {
  if (!n.is(ops::matmul)) return false;
  Node a = n.input(0), b = n.input(1);
  if (!is_product_dtype(a.dtype(), b.dtype(), n.dtype())) return false;
  DType dtype = a.dtype() == b.dtype() && a.dtype() != DType::F16 ? a.dtype() : DType::F32;
  View va = as_matrix(product_operand(a, dtype), true), vb = as_matrix(product_operand(b, dtype), false);
  Extents batch = at(n).shape;
  if (b.rank() > 1) batch.pop_back();
  if (a.rank() > 1) batch.pop_back();
  // A stack of matrices times one matrix is one tall product, where the rows are evenly spaced.
  if (vb.shape.size() == 2 && va.shape.size() > 2) {
    std::int64_t rows = count(batch) * va.shape[va.shape.size() - 2];
    if (auto tall = reshape_view(va, {rows, va.shape.back()}); tall && is_matrix(*tall)) va = *tall, batch.clear();
  }
  auto with_batch = [&](const View& v) {
    Extents shape = batch;
    shape.insert(shape.end(), v.shape.end() - 2, v.shape.end());
    return broadcast_view(v, shape);
  };
  add_product(n, dtype, with_batch(va), with_batch(vb), batch);
  return true;
}

// Its axes in the order batch, free, contracted (left) and batch, contracted, free (right) make it a stack of products.
bool Planner::plan_dot_general(Node n) {
  if (!n.is(ops::dot_general)) return false;
  Node a = n.input(0), b = n.input(1);
  if (!is_product_dtype(a.dtype(), b.dtype(), n.dtype()) || a.dtype() == DType::I8) return false;
  DType dtype = a.dtype() == b.dtype() && a.dtype() != DType::F16 ? a.dtype() : DType::F32;
  auto& attrs = n.attrs<DotGeneralAttrs>();
  auto free_axes = [](Node x, const Axes& batch, const Axes& contract) {
    Axes out;
    for (int d = 0; d < x.rank(); ++d) {
      auto is_d = [&](int axis) { return normalize_axis(axis, x.rank()) == d; };
      if (std::ranges::none_of(batch, is_d) && std::ranges::none_of(contract, is_d)) out.push_back(d);
    }
    return out;
  };
  // The view with three groups of axes, each as one.
  auto grouped = [&](Node x, std::initializer_list<Axes> groups) {
    View v = product_operand(x, dtype), moved{v.buffer, v.offset, {}, {}};
    Extents merged;
    for (auto& group : groups) {
      merged.push_back(1);
      for (int axis : group) {
        auto d = std::size_t(normalize_axis(axis, x.rank()));
        moved.shape.push_back(v.shape[d]), moved.strides.push_back(v.strides[d]);
        merged.back() *= v.shape[d];
      }
    }
    auto out = reshape_view(moved, merged);
    return out ? *out : *reshape_view(copied(moved, dtype, at(x).kept), merged);
  };
  View va = grouped(a, {attrs.lhs_batch, free_axes(a, attrs.lhs_batch, attrs.lhs_contract), attrs.lhs_contract});
  View vb = grouped(b, {attrs.rhs_batch, attrs.rhs_contract, free_axes(b, attrs.rhs_batch, attrs.rhs_contract)});
  add_product(n, dtype, va, vb, {va.shape[0]});
  return true;
}

}  // namespace rlx::cpu
