// Gathers and scatters along an axis: embeddings, codebooks, and their gradients. Indices of every integer dtype.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/cpu/planner.h"
#include "base/parallel.h"

namespace rlx::cpu {
namespace {

template <class F>
void visit_index_dtype(DType d, F&& f) {
  visit_dtype(d, [&]<class T>(T zero) {
    if constexpr (std::integral<T> && !std::same_as<T, bool>)
      f(zero);
    else
      throw InternalError("indices are no integers");
  });
}

// The indices of a gather or scatter and the axis that they run along.
struct Indices {
  View view;
  DType dtype = DType::I64;
  std::int64_t count = 0, rows = 0;
  std::string op, where;

  template <class T>
  const T* in(std::byte* const* buffers) const {
    return reinterpret_cast<const T*>(buffers[view.buffer]) + view.offset;
  }
  /// Throws UserError that names the first index outside the axis.
  template <class T>
  void check(const T* at) const {
    bool bad = false;
    for (std::int64_t i = 0; i < count; ++i) bad |= is_outside(at[i]);
    for (std::int64_t i = 0; bad && i < count; ++i)
      if (is_outside(at[i]))
        throw UserError(fmt::format("[{}] index {} is outside [{}, {}) (at {})", op, at[i],
                                    std::signed_integral<T> ? -rows : 0, rows, where));
  }
  template <class T>
  bool is_outside(T i) const {
    return std::cmp_less(i, -rows) || std::cmp_greater_equal(i, rows);
  }
  template <class T>
  std::int64_t row(T i) const {
    if constexpr (std::signed_integral<T>)
      return i < 0 ? std::int64_t(i) + rows : std::int64_t(i);
    else
      return std::int64_t(i);
  }
};

Indices indices_of(Node n, View view, std::int64_t rows) {
  Node at = n.input(1);
  std::int64_t total = count(view.shape);
  std::string where = n.text() + (n.origins().empty() ? "" : ", " + n.origins().front());
  return {std::move(view), at.dtype(), total, rows, std::string(n.op().name), where};
}

constexpr std::int64_t kGrain = 65536;  // bytes

// Rows of `width` bytes; a constant width is copied in a register or two.
template <std::size_t kWidth, class T>
void copy_rows(const Indices& indices, const T* at, const std::byte* table, std::byte* out, std::size_t width,
               std::int64_t begin, std::int64_t end) {
  std::size_t w = kWidth ? kWidth : width;
  for (std::int64_t i = begin; i < end; ++i)
    std::memcpy(out + std::size_t(i) * w, table + std::size_t(indices.row(at[i])) * w, w);
}

template <class T>
void gather_rows(const Indices& indices, const T* at, const std::byte* table, std::byte* out, std::size_t width) {
  parallel_for(indices.count, kGrain / std::int64_t(width), [&](std::int64_t begin, std::int64_t end) {
    switch (width) {
      case 4: return copy_rows<4>(indices, at, table, out, width, begin, end);
      case 8: return copy_rows<8>(indices, at, table, out, width, begin, end);
      case 16: return copy_rows<16>(indices, at, table, out, width, begin, end);
      case 32: return copy_rows<32>(indices, at, table, out, width, begin, end);
      default: return copy_rows<0>(indices, at, table, out, width, begin, end);
    }
  });
}

struct Scatter {
  Indices indices;
  View table, updates, out;
  std::int64_t width = 0;  // numbers a row
  bool add = false;
  // Of a narrow sum: runs of indices with a table of their own each, which are then added in order.
  int partial_buffer = -1;
  std::int64_t chunks = 1;
};

// Columns are split among threads, so that each sum has the order of the indices.
template <class T>
void scatter_columns(const Scatter& s, const T* at, const float* base, const float* from, float* to) {
  parallel_for(s.width, 64, [&](std::int64_t begin, std::int64_t end) {
    std::size_t bytes = std::size_t(end - begin) * 4;
    for (std::int64_t r = 0; r < s.indices.rows; ++r)
      std::memcpy(to + r * s.width + begin, base + r * s.width + begin, bytes);
    for (std::int64_t i = 0; i < s.indices.count; ++i) {
      float* row = to + s.indices.row(at[i]) * s.width;
      if (s.add)
        for (std::int64_t c = begin; c < end; ++c) row[c] += from[i * s.width + c];
      else
        std::memcpy(row + begin, from + i * s.width + begin, bytes);
    }
  });
}

template <std::int64_t kWidth, class T>
void add_rows(const Scatter& s, const T* at, const float* from, float* sums, std::int64_t begin, std::int64_t end) {
  std::int64_t w = kWidth ? kWidth : s.width;
  for (std::int64_t i = begin; i < end; ++i) {
    float* row = sums + s.indices.row(at[i]) * w;
    for (std::int64_t c = 0; c < w; ++c) row[c] += from[i * w + c];
  }
}

// Many short rows into a small table. The chunks follow from the sizes alone.
template <class T>
void scatter_chunks(const Scatter& s, const T* at, const float* base, const float* from, float* partial, float* to) {
  std::int64_t table = s.indices.rows * s.width, chunk = (s.indices.count + s.chunks - 1) / s.chunks;
  parallel_for(s.chunks, [&](std::int64_t i) {
    float* sums = partial + i * table;
    std::fill_n(sums, table, 0.0f);
    std::int64_t begin = i * chunk, end = std::min(s.indices.count, begin + chunk);
    switch (s.width) {
      case 1: return add_rows<1>(s, at, from, sums, begin, end);
      case 2: return add_rows<2>(s, at, from, sums, begin, end);
      case 4: return add_rows<4>(s, at, from, sums, begin, end);
      case 8: return add_rows<8>(s, at, from, sums, begin, end);
      default: return add_rows<0>(s, at, from, sums, begin, end);
    }
  });
  parallel_for(table, 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = 0; c < s.chunks; ++c) {
      const float* more = partial + c * table;
      if (c == 0)
        for (std::int64_t i = begin; i < end; ++i) to[i] = base[i] + more[i];
      else
        for (std::int64_t i = begin; i < end; ++i) to[i] += more[i];
    }
  });
}

std::int64_t chunks_of(const Scatter& s) {
  constexpr std::int64_t kWidest = 64, kMost = 64;
  if (!s.add || s.width > kWidest) return 1;
  return std::clamp<std::int64_t>(s.indices.count / std::max<std::int64_t>(4096, 8 * s.indices.rows), 1, kMost);
}

}  // namespace

// Slices of a tensor by index.
bool Planner::plan_gather(Node n) {
  if (!n.is(ops::gather)) return false;
  Node x = n.input(0);
  const Extents& shape = at(x).shape;
  auto axis = shape.begin() + normalize_axis(n.attrs<AxisAttrs>().axis, x.rank());
  std::int64_t outer = count(Extents(shape.begin(), axis)), inner = count(Extents(axis + 1, shape.end()));
  View table = contiguous_memory(x), index = contiguous_memory(n.input(1)), out = storage(n);
  if (!out.is_contiguous()) return false;
  Indices indices = indices_of(n, index, *axis);
  std::size_t size = size_of(n.dtype()), width = std::size_t(inner) * size;
  add_step({.name = "gather " + label_of(n),
            .reads = {table.buffer, index.buffer},
            .writes = {out.buffer},
            .kept = at(n).kept,
            .interpreted = false,
            .run = [=](std::byte* const* b) {
              visit_index_dtype(indices.dtype, [&]<class T>(T) {
                const T* at = indices.in<T>(b);
                indices.check(at);
                const std::byte* from = b[table.buffer] + std::size_t(table.offset) * size;
                std::byte* to = b[out.buffer] + std::size_t(out.offset) * size;
                parallel_for(outer, kGrain / (indices.count * std::int64_t(width)),
                             [&](std::int64_t begin, std::int64_t end) {
                               for (std::int64_t o = begin; o < end; ++o)
                                 gather_rows(indices, at, from + std::size_t(o * indices.rows) * width,
                                             to + std::size_t(o * indices.count) * width, width);
                             });
              });
            }});
  at(n).ready = int(steps_.size());
  return true;
}

// Rows set or added by index, along the first axis: the gradients of embeddings and codebooks. 16-bit ones are rounded
// once, from f32 sums.
bool Planner::plan_scatter(Node n) {
  bool narrow = n.dtype() == DType::F32 || n.dtype() == DType::BF16 || n.dtype() == DType::F16;
  if (!n.is(ops::scatter) || !narrow) return false;
  auto& attrs = n.attrs<ScatterAttrs>();
  Node x = n.input(0);
  if (normalize_axis(attrs.axis, x.rank()) != 0) return false;
  View index = contiguous_memory(n.input(1));
  Scatter s{indices_of(n, index, at(x).shape[0]), contiguous_f32_memory(x), contiguous_f32_memory(n.input(2)),
            f32_storage(n)};
  if (!s.out.is_contiguous()) return false;
  s.width = count(at(x).shape) / s.indices.rows, s.add = attrs.mode == ScatterMode::Add;
  s.chunks = chunks_of(s);
  Step step{.name = "scatter " + label_of(n),
            .reads = {s.table.buffer, index.buffer, s.updates.buffer},
            .writes = {s.out.buffer},
            .kept = at(n).kept,
            .interpreted = false,
            .run = nullptr};
  if (s.chunks > 1)
    step.writes.push_back(s.partial_buffer = new_buffer(DType::F32, s.chunks * count(at(x).shape), at(n).kept));
  step.run = [s](std::byte* const* b) {
    auto floats = [&](const View& v) { return reinterpret_cast<float*>(b[v.buffer]) + v.offset; };
    visit_index_dtype(s.indices.dtype, [&]<class T>(T) {
      const T* at = s.indices.in<T>(b);
      s.indices.check(at);
      if (s.chunks > 1)
        scatter_chunks(s, at, floats(s.table), floats(s.updates), reinterpret_cast<float*>(b[s.partial_buffer]),
                       floats(s.out));
      else
        scatter_columns(s, at, floats(s.table), floats(s.updates), floats(s.out));
    });
  };
  add_step(std::move(step));
  finish_f32(n, s.out);
  return true;
}

}  // namespace rlx::cpu
