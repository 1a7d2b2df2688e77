// Ops that are one call of a kernel: matrix products, gathers, scatters, convolutions.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "backends/cpu/gemm.h"
#include "backends/cpu/planner.h"
#include "base/parallel.h"

namespace rlx::cpu {
namespace {

template <class T> std::byte* address(std::byte* const* buffers, const View& v) { return buffers[v.buffer] + v.offset * std::int64_t(sizeof(T)); }

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

// Turns batch axes into one that gemm loops over and a list of offsets for the rest.
void plan_batch(Product& p, const Extents& batch) {
  std::size_t n = batch.size();
  auto stride = [](const View& v, std::size_t d) { return v.shape[d] == 1 ? 0 : v.strides[d]; };
  std::size_t inner = n;  // the last axis of more than one item
  while (inner > 0 && batch[inner - 1] == 1) --inner;
  if (inner > 0) {
    p.args.batch = batch[inner - 1];
    p.args.a_batch = stride(p.a, inner - 1), p.args.b_batch = stride(p.b, inner - 1), p.args.c_batch = stride(p.c, inner - 1);
  }
  std::int64_t outer = 1;
  for (std::size_t d = 0; d + 1 < inner; ++d) outer *= batch[d];
  for (std::int64_t i = 0; i < outer; ++i) {
    std::array<std::int64_t, 3> at{};
    std::int64_t rest = i;
    for (std::size_t d = inner > 0 ? inner - 1 : 0; d-- > 0; rest /= batch[d]) {
      at[0] += rest % batch[d] * stride(p.a, d);
      at[1] += rest % batch[d] * stride(p.b, d);
      at[2] += rest % batch[d] * stride(p.c, d);
    }
    p.offsets.push_back(at);
  }
}

}  // namespace

bool Planner::plan_matmul(Node n) {
  if (!n.is(ops::matmul)) return false;
  Node a = n.input(0), b = n.input(1);
  bool f32 = a.dtype() == DType::F32 && b.dtype() == DType::F32 && n.dtype() == DType::F32;
  bool i8 = a.dtype() == DType::I8 && b.dtype() == DType::I8 && n.dtype() == DType::I32;
  if (!f32 && !i8) return false;
  View va = memory(a), vb = memory(b);
  auto matrix = [&](View v, bool left) {  // a vector is a row on the left, a column on the right
    if (v.shape.size() == 1) {
      v.shape.insert(left ? v.shape.begin() : v.shape.end(), 1);
      v.strides.insert(left ? v.strides.begin() : v.strides.end(), v.shape[left ? 1 : 0]);
      if (!left) v.strides[1] = 1;
    }
    return v;
  };
  va = matrix(va, true), vb = matrix(vb, false);
  std::int64_t m = va.shape[va.shape.size() - 2], k = va.shape.back(), cols = vb.shape.back();
  Extents batch = at(n).shape;
  if (b.rank() > 1) batch.pop_back();
  if (a.rank() > 1) batch.pop_back();
  // A stack of matrices times one matrix is one tall product, where the rows are evenly spaced.
  View c;
  if (vb.shape.size() == 2 && va.shape.size() > 2) {
    if (auto tall = reshape_view(va, {count(batch) * m, k}); tall && is_matrix(*tall)) va = *tall, m *= count(batch), batch.clear();
  }
  if (!is_matrix(va)) va = copied(va, a.dtype(), at(a).kept);
  if (!is_matrix(vb)) vb = copied(vb, b.dtype(), at(b).kept);
  View out = storage(n);
  Extents c_shape = batch;
  c_shape.push_back(m), c_shape.push_back(cols);
  auto laid = reshape_view(out, c_shape);
  if (!laid || (laid->shape.back() != 1 && laid->strides.back() != 1)) throw InternalError("the memory of a product does not fit: " + n.text());
  c = *laid;

  auto product = std::make_shared<Product>();
  auto widen = [&](View v) {  // with all batch axes
    Extents shape = batch;
    shape.push_back(v.shape[v.shape.size() - 2]), shape.push_back(v.shape.back());
    return broadcast_view(v, shape);
  };
  product->a = widen(va), product->b = widen(vb), product->c = c;
  GemmArgs& g = product->args;
  g.a_type = a.dtype(), g.b_type = b.dtype();
  g.m = m, g.n = cols, g.k = k;
  std::tie(g.a_row, g.a_col) = matrix_strides(va);
  std::tie(g.b_row, g.b_col) = matrix_strides(vb);
  g.c_row = m == 1 ? std::max<std::int64_t>(cols, 1) : c.strides[c.strides.size() - 2];
  plan_batch(*product, batch);
  std::int64_t width = std::int64_t(size_of(a.dtype()));
  add_step({.name = fmt::format("gemm {}{}x{}x{} {}", batch.empty() ? "" : to_string(batch) + " ", m, cols, k, label_of(n)), .reads = {va.buffer, vb.buffer},
            .writes = {c.buffer}, .kept = at(n).kept, .interpreted = false,
            .run = [product, width](std::byte* const* buffers) {
              GemmArgs args = product->args;
              for (auto& offset : product->offsets) {
                args.a = buffers[product->a.buffer] + (product->a.offset + offset[0]) * width;
                args.b = buffers[product->b.buffer] + (product->b.offset + offset[1]) * width;
                args.c = buffers[product->c.buffer] + (product->c.offset + offset[2]) * 4;
                gemm(args);
              }
            }});
  at(n).ready = int(steps_.size());
  return true;
}

// Rows of a table by index: the embedding.
bool Planner::plan_gather(Node n) {
  if (!n.is(ops::gather) || size_of(n.dtype()) != 4) return false;
  Node x = n.input(0), indices = n.input(1);
  if (normalize_axis(n.attrs<AxisAttrs>().axis, x.rank()) != 0 || indices.dtype() != DType::I32) return false;
  View table = contiguous_memory(x), index = contiguous_memory(indices), out = storage(n);
  if (!out.is_contiguous()) return false;
  std::int64_t rows = table.shape[0], width = count(table.shape) / rows, total = count(index.shape);
  add_step({.name = "gather " + label_of(n), .reads = {table.buffer, index.buffer}, .writes = {out.buffer}, .kept = at(n).kept, .interpreted = false,
            .run = [=, label = n.text()](std::byte* const* b) {
              auto at = reinterpret_cast<const std::int32_t*>(address<std::int32_t>(b, index));
              parallel_for(total, std::max<std::int64_t>(1, 16384 / width), [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t i = begin; i < end; ++i) {
                  std::int64_t row = at[i] < 0 ? at[i] + rows : at[i];
                  if (row < 0 || row >= rows)
                    throw UserError(fmt::format("[gather] index {} is outside [-{}, {}) (at {})", at[i], rows, rows, label));
                  std::memcpy(address<float>(b, out) + i * width * 4, address<float>(b, table) + row * width * 4, std::size_t(width) * 4);
                }
              });
            }});
  at(n).ready = int(steps_.size());
  return true;
}

// Rows added to a table by index: the gradient of an embedding. Columns are split among threads, so that each sum has
// the order of the indices.
bool Planner::plan_scatter(Node n) {
  if (!n.is(ops::scatter) || n.dtype() != DType::F32) return false;
  auto& attrs = n.attrs<ScatterAttrs>();
  Node x = n.input(0), indices = n.input(1), updates = n.input(2);
  if (normalize_axis(attrs.axis, x.rank()) != 0 || indices.dtype() != DType::I32) return false;
  View table = contiguous_memory(x), index = contiguous_memory(indices), add = contiguous_memory(updates), out = storage(n);
  if (!out.is_contiguous()) return false;
  std::int64_t rows = table.shape[0], width = count(table.shape) / rows, total = count(index.shape);
  bool sum = attrs.mode == ScatterMode::Add;
  add_step({.name = "scatter " + label_of(n), .reads = {table.buffer, index.buffer, add.buffer}, .writes = {out.buffer}, .kept = at(n).kept, .interpreted = false,
            .run = [=, label = n.text()](std::byte* const* b) {
              auto at = reinterpret_cast<const std::int32_t*>(address<std::int32_t>(b, index));
              for (std::int64_t i = 0; i < total; ++i)
                if (at[i] < -rows || at[i] >= rows) throw UserError(fmt::format("[scatter] index {} is outside [-{}, {}) (at {})", at[i], rows, rows, label));
              auto from = reinterpret_cast<const float*>(address<float>(b, add));
              auto to = reinterpret_cast<float*>(address<float>(b, out));
              auto base = reinterpret_cast<const float*>(address<float>(b, table));
              parallel_for(width, 64, [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t r = 0; r < rows; ++r) std::memcpy(to + r * width + begin, base + r * width + begin, std::size_t(end - begin) * 4);
                for (std::int64_t i = 0; i < total; ++i) {
                  float* row = to + (at[i] < 0 ? at[i] + rows : at[i]) * width;
                  if (sum)
                    for (std::int64_t c = begin; c < end; ++c) row[c] += from[i * width + c];
                  else std::memcpy(row + begin, from + i * width + begin, std::size_t(end - begin) * 4);
                }
              });
            }});
  at(n).ready = int(steps_.size());
  return true;
}

bool Planner::plan_conv(Node) { return false; }

}  // namespace rlx::cpu
