// Pools, and the scatter along rows that the gradient of a max pool is. In f32, 16-bit results rounded once from it.
#include <fmt/format.h>

#include "backends/cpu/planner.h"
#include "base/parallel.h"
#include "ops/pool.h"

namespace rlx::cpu {
namespace {

// Which places of a plane each window reads, and what its mean is divided by.
struct PoolTable {
  std::vector<std::int32_t> start{0}, place;
  std::vector<double> divisor;
  std::int64_t planes, in, out;

  explicit PoolTable(const PoolWindows& w) : planes(w.planes), in(w.in_size()), out(w.out_size()) {
    for (std::int64_t o = 0; o < out; ++o) {
      w.for_each(o, [&](std::int64_t at) { place.push_back(std::int32_t(at)); });
      start.push_back(std::int32_t(place.size()));
      divisor.push_back(w.divisor(o));
    }
  }
  // Calls f(plane) on the pool.
  template <class F>
  void for_each_plane(F&& f) const {
    std::int64_t grain = std::max<std::int64_t>(1, (1 << 14) / std::max<std::int64_t>(1, std::int64_t(place.size())));
    parallel_for(planes, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t plane = begin; plane < end; ++plane) f(plane);
    });
  }
};

// The first largest of a window; NaN is larger than all.
std::int32_t largest(const PoolTable& t, const float* x, std::int64_t o) {
  std::int32_t best = t.place[std::size_t(t.start[std::size_t(o)])];
  for (auto i = std::size_t(t.start[std::size_t(o)]) + 1; i < std::size_t(t.start[std::size_t(o) + 1]); ++i) {
    float v = x[t.place[i]], b = x[best];
    if (v > b || (v != v && b == b)) best = t.place[i];
  }
  return best;
}

void max_pool_values(const PoolTable& t, const float* x, float* y) {
  t.for_each_plane([&](std::int64_t plane) {
    const float* from = x + plane * t.in;
    for (std::int64_t o = 0; o < t.out; ++o) y[plane * t.out + o] = from[largest(t, from, o)];
  });
}
void max_pool_places(const PoolTable& t, const float* x, std::int64_t* y) {
  t.for_each_plane([&](std::int64_t plane) {
    for (std::int64_t o = 0; o < t.out; ++o) y[plane * t.out + o] = largest(t, x + plane * t.in, o);
  });
}
void avg_pool_values(const PoolTable& t, const float* x, float* y) {
  t.for_each_plane([&](std::int64_t plane) {
    for (std::int64_t o = 0; o < t.out; ++o) {
      double total = 0;
      for (auto i = std::size_t(t.start[std::size_t(o)]); i < std::size_t(t.start[std::size_t(o) + 1]); ++i)
        total += double(x[plane * t.in + t.place[i]]);
      y[plane * t.out + o] = float(total / t.divisor[std::size_t(o)]);
    }
  });
}
void avg_pool_gradient(const PoolTable& t, const float* dy, float* dx) {
  t.for_each_plane([&](std::int64_t plane) {
    std::vector<double> sums(std::size_t(t.in));
    for (std::int64_t o = 0; o < t.out; ++o) {
      double part = double(dy[plane * t.out + o]) / t.divisor[std::size_t(o)];
      for (auto i = std::size_t(t.start[std::size_t(o)]); i < std::size_t(t.start[std::size_t(o) + 1]); ++i)
        sums[std::size_t(t.place[i])] += part;
    }
    for (std::int64_t i = 0; i < t.in; ++i) dx[plane * t.in + i] = float(sums[std::size_t(i)]);
  });
}

PoolAttrs pool_of(const AvgPoolBackwardAttrs& a) {
  return {a.kernel, a.strides, a.low, a.high, a.dilation, a.ceil_mode, a.count_include_pad};
}
bool is_narrow(DType d) { return d == DType::F32 || d == DType::BF16 || d == DType::F16; }

template <class T> T* at_view(std::byte* const* buffers, const View& v) { return reinterpret_cast<T*>(buffers[v.buffer]) + v.offset; }

}  // namespace

bool Planner::plan_pool(Node n) {
  if (n.op().kind != Kind::Pool || !is_narrow(n.input(0).dtype())) return false;
  bool backward = n.is(ops::avg_pool_backward), places = n.is(ops::max_pool_indices);
  bool mean = backward || n.is(ops::avg_pool);
  if (!mean && !places && !n.is(ops::max_pool)) return false;
  auto& in = at(n.input(0)).shape;
  PoolWindows windows = backward ? PoolWindows(at(n).shape, in, pool_of(n.attrs<AvgPoolBackwardAttrs>()))
                                 : PoolWindows(in, at(n).shape, n.attrs<PoolAttrs>());
  if (windows.reads() > 1 << 22) return false;
  auto table = std::make_shared<const PoolTable>(windows);
  for (std::size_t o = 0; !mean && o + 1 < table->start.size(); ++o)
    if (table->start[o] == table->start[o + 1]) return false;  // the interpreter says which window holds nothing
  View x = contiguous_f32_memory(n.input(0)), out = places ? storage(n) : f32_storage(n);
  add_step({.name = "pool " + label_of(n), .reads = {x.buffer}, .writes = {out.buffer}, .kept = at(n).kept, .interpreted = false,
            .run = [=](std::byte* const* b) {
              const float* from = at_view<float>(b, x);
              if (places) return max_pool_places(*table, from, at_view<std::int64_t>(b, out));
              float* to = at_view<float>(b, out);
              if (backward) return avg_pool_gradient(*table, from, to);
              mean ? avg_pool_values(*table, from, to) : max_pool_values(*table, from, to);
            }});
  if (places) at(n).ready = int(steps_.size());
  else finish_f32(n, out);
  return true;
}

// Elements added or set along the last axis, row by row: in the order of the indices, whatever the number of threads.
bool Planner::plan_scatter_elements(Node n) {
  if (!n.is(ops::scatter_elements) || !is_narrow(n.dtype())) return false;
  auto& attrs = n.attrs<ScatterAttrs>();
  Node x = n.input(0), indices = n.input(1), updates = n.input(2);
  auto leading = [&](Node m) { return Extents(at(m).shape.begin(), at(m).shape.end() - 1); };
  bool by_rows = normalize_axis(attrs.axis, x.rank()) == x.rank() - 1 && at(indices).shape == at(updates).shape && leading(indices) == leading(x);
  if (!by_rows || indices.dtype() != DType::I64 || x.dtype() != n.dtype() || updates.dtype() != n.dtype()) return false;
  View base = contiguous_f32_memory(x), index = contiguous_memory(indices), from = contiguous_f32_memory(updates), out = f32_storage(n);
  if (!out.is_contiguous()) return false;
  std::int64_t rows = count(leading(x)), width = at(x).shape.back(), taken = at(indices).shape.back();
  bool sum = attrs.mode == ScatterMode::Add;
  add_step({.name = "scatter_elements " + label_of(n), .reads = {base.buffer, index.buffer, from.buffer}, .writes = {out.buffer}, .kept = at(n).kept,
            .interpreted = false, .run = [=, label = n.text()](std::byte* const* b) {
              parallel_for(rows, std::max<std::int64_t>(1, (1 << 14) / (width + taken)), [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t r = begin; r < end; ++r) {
                  const float *old = at_view<float>(b, base) + r * width, *u = at_view<float>(b, from) + r * taken;
                  const std::int64_t* places = at_view<std::int64_t>(b, index) + r * taken;
                  float* to = at_view<float>(b, out) + r * width;
                  std::copy(old, old + width, to);
                  for (std::int64_t i = 0; i < taken; ++i) {
                    std::int64_t place = places[i] < 0 ? places[i] + width : places[i];
                    if (place < 0 || place >= width)
                      throw UserError(fmt::format("[scatter_elements] index {} is outside [-{}, {}) (at {})", places[i], width, width, label));
                    to[place] = sum ? to[place] + u[i] : u[i];
                  }
                }
              });
            }});
  finish_f32(n, out);
  return true;
}

}  // namespace rlx::cpu
