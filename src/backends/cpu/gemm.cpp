// Splits a matrix product into tiles chosen from its shape alone and runs each on one thread: through oneDNN where it
// is exact and native, through kernels of our own for vectors and for what this CPU has no instructions for.
#include "backends/cpu/gemm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "backends/cpu/isa.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/onednn.h"
#include "base/lru_cache.h"
#include "base/parallel.h"

namespace rlx::cpu {
namespace {

using i64 = std::int64_t;

constexpr double kParallelFlops = 5e5;  // below it, waking a thread costs more than it saves

// ---------------------------------------------------------------------------------------------- oneDNN

/// One tile as oneDNN sees it; also the key of its primitive.
struct TileKey {
  i64 kind, m, n, k, a_row, a_col, b_row, b_col, c_row, accumulate;
  i64 batch = 1, a_batch = 0, b_batch = 0, c_batch = 0;  // items of one call
  bool operator==(const TileKey&) const = default;
};
struct TileHash {
  std::size_t operator()(const TileKey& key) const {
    std::uint64_t h = 0x9e3779b97f4a7c15u;
    for (i64 v : {key.kind, key.m, key.n, key.k, key.a_row, key.a_col, key.b_row, key.b_col, key.c_row, key.accumulate,
                  key.batch, key.a_batch, key.b_batch, key.c_batch})
      h = (h ^ std::uint64_t(v)) * 0xbf58476d1ce4e5b9u, h ^= h >> 29;
    return h;
  }
};

enum Kind : i64 { kF32, kBf16, kS8, kU8 };

/// A oneDNN matmul for one tile shape; may run on several threads at once.
class TileProduct {
 public:
  explicit TileProduct(const TileKey& key) {
    using dt = dnnl::memory::data_type;
    dt a = key.kind == kF32 ? dt::f32 : key.kind == kBf16 ? dt::bf16 : key.kind == kS8 ? dt::s8 : dt::u8;
    dt b = key.kind == kU8 ? dt::s8 : a, c = key.kind == kF32 || key.kind == kBf16 ? dt::f32 : dt::s32;
    auto describe = [&](i64 rows, i64 cols, dt type, i64 row, i64 col, i64 batch) {
      if (key.batch == 1) return dnnl::memory::desc({rows, cols}, type, dnnl::memory::dims{row, col});
      return dnnl::memory::desc({key.batch, rows, cols}, type, dnnl::memory::dims{batch, row, col});
    };
    auto a_desc = describe(key.m, key.k, a, key.a_row, key.a_col, key.a_batch);
    auto b_desc = describe(key.k, key.n, b, key.b_row, key.b_col, key.b_batch);
    auto c_desc = describe(key.m, key.n, c, key.c_row, 1, key.c_batch);
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);  // the library's own is bound to the creating thread
    if (key.accumulate) {
      dnnl::post_ops ops;
      ops.append_sum(1.0f);
      attr.set_post_ops(ops);
    }
    OneThread one;
    dnnl::matmul::primitive_desc desc({a_desc, b_desc, c_desc}, attr, onednn_engine());
    primitive_ = dnnl::matmul(desc);
    descs_ = {desc.src_desc(), desc.weights_desc(), desc.dst_desc(), desc.scratchpad_desc()};
  }

  void run(const void* a, const void* b, void* c) {
    std::unique_ptr<Memories> use = take();
    (*use)[0].set_data_handle(const_cast<void*>(a));
    (*use)[1].set_data_handle(const_cast<void*>(b));
    (*use)[2].set_data_handle(c);
    (*use)[3].set_data_handle(thread_scratch(Scratch::OneDnn, descs_[3].get_size()));
    dnnl_exec_arg_t args[4] = {{DNNL_ARG_SRC, (*use)[0].get()},
                               {DNNL_ARG_WEIGHTS, (*use)[1].get()},
                               {DNNL_ARG_DST, (*use)[2].get()},
                               {DNNL_ARG_SCRATCHPAD, (*use)[3].get()}};
    OneThread one;
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), onednn_stream().get(), 4, args), "matmul failed");
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(use));
  }

 private:
  using Memories = std::array<dnnl::memory, 4>;

  std::unique_ptr<Memories> take() {
    {
      std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        auto last = std::move(free_.back());
        free_.pop_back();
        return last;
      }
    }
    auto fresh = std::make_unique<Memories>();
    for (std::size_t i = 0; i < 4; ++i) (*fresh)[i] = dnnl::memory(descs_[i], onednn_engine(), nullptr);
    return fresh;
  }

  dnnl::primitive primitive_;
  std::array<dnnl::memory::desc, 4> descs_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Memories>> free_;
};

std::shared_ptr<TileProduct> tile_product(const TileKey& key) {
  static auto& cache = *new LruCache<TileKey, TileProduct, TileHash>(512);
  return cache.get(key, [&] { return std::make_shared<TileProduct>(key); });
}

// ---------------------------------------------------------------------------------------------- shapes

i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }
i64 round_up(i64 a, i64 b) { return ceil_div(a, b) * b; }

/// An axis cut into nearly equal pieces of at most about `tile`, multiples of `align` but for the last.
i64 piece(i64 length, i64 tile, i64 align) {
  return std::min(length, round_up(ceil_div(length, ceil_div(length, tile)), align));
}

struct Tiles {
  i64 m, n;        // sizes of a tile
  i64 rows, cols;  // how many
};

/// Tiles as large as the caches like, lower where that gives too few of them for 16 threads, but not below about 70 µs
/// of work nor 64 rows, where copying B for each tile begins to cost.
Tiles choose_tiles(Kind kind, i64 m, i64 n, i64 k) {
  i64 tm = 256, tn = kind == kF32 ? 128 : 256;
  double least = kind == kF32 ? 8e6 : kind == kBf16 ? 16e6 : 32e6;
  auto count = [&] { return ceil_div(m, tm) * ceil_div(n, tn); };
  auto work = [&] { return 2.0 * double(std::min(m, tm)) * double(std::min(n, tn)) * double(k); };
  while (count() < 16 && work() >= 2 * least && tm > 64) tm /= 2;
  Tiles t{piece(m, tm, 16), piece(n, tn, 64), 0, 0};
  t.rows = ceil_div(m, t.m), t.cols = ceil_div(n, t.n);
  return t;
}

struct Operand {
  const std::byte* data;
  i64 row, col, batch, outer;
  i64 size;  // of an element
};

/// Gives axes of one element the stride that a dense matrix would have, and checks the others.
void normalize(const char* name, i64 rows, i64 cols, i64& row, i64& col) {
  if (cols == 1) col = row == 1 ? rows : 1;
  if (rows == 1) row = col == 1 ? cols : 1;
  bool dense_rows = col == 1 && (rows == 1 || row >= cols), dense_cols = row == 1 && (cols == 1 || col >= rows);
  if (!dense_rows && !dense_cols)
    throw UserError(std::string("[gemm] operand ") + name + ": got strides (" + std::to_string(row) + ", " +
                    std::to_string(col) + ") for [" + std::to_string(rows) + "," + std::to_string(cols) +
                    "], expected one of them 1 and the other at least the extent it steps over");
}

struct Product {
  Kind kind;
  i64 outer, batch, m, n, k;
  Operand a, b;
  std::byte* c;
  i64 c_row, c_batch, c_outer;
  bool accumulate;

  i64 items() const { return outer * batch; }
  double item_flops() const { return 2.0 * double(m) * double(n) * double(k); }
  double flops() const { return double(items()) * item_flops(); }
  const std::byte* at(const Operand& x, i64 item, i64 i, i64 j) const {
    return x.data + (item / batch * x.outer + item % batch * x.batch + i * x.row + j * x.col) * x.size;
  }
  std::byte* out(i64 item, i64 i, i64 j) const {
    return c + (item / batch * c_outer + item % batch * c_batch + i * c_row + j) * 4;
  }
};

/// Runs chunks [0, n) on the pool where the whole is worth it.
template <class F>
void for_chunks(const Product& p, i64 n, F&& f) {
  if (p.flops() >= kParallelFlops) return parallel_for(n, f);
  for (i64 chunk = 0; chunk < n; ++chunk) f(chunk);
}

/// How many items make a chunk that is worth a thread's while.
i64 items_per_chunk(const Product& p) { return std::clamp<i64>(i64(1e6 / p.item_flops()), 1, p.items()); }

/// Calls f(item, tile) for all; several small items make one chunk.
template <class F>
void for_each_tile(const Product& p, i64 tiles, F&& f) {
  i64 group = tiles == 1 ? items_per_chunk(p) : 1;
  for_chunks(p, ceil_div(p.items(), group) * tiles, [&](i64 chunk) {
    i64 first = chunk / tiles * group, last = std::min(p.items(), first + group);
    for (i64 item = first; item < last; ++item) f(item, chunk % tiles);
  });
}

// ---------------------------------------------------------------------------------------------- vectors

template <class M, class X, class Y>
const MatrixVector<M, X, Y>& matvec_kernels();
template <>
const MatrixVector<float, float, float>& matvec_kernels() {
  return kernels().matvec_f32;
}
template <>
const MatrixVector<std::uint16_t, float, float>& matvec_kernels() {
  return kernels().matvec_bf16;
}
template <>
const MatrixVector<std::int8_t, std::int16_t, std::int32_t>& matvec_kernels() {
  return kernels().matvec_s8;
}
template <>
const MatrixVector<std::uint8_t, std::int16_t, std::int32_t>& matvec_kernels() {
  return kernels().matvec_u8;
}

/// The vector operand as contiguous X, in this thread's scratch unless it is that already.
template <class T, class X>
const X* dense_vector(const void* data, i64 k, i64 stride) {
  auto in = static_cast<const T*>(data);
  if constexpr (std::is_same_v<T, X>)
    if (stride == 1) return in;
  X* out = static_cast<X*>(thread_scratch(Scratch::GemmLeft, std::size_t(k) * sizeof(X)));
  for (i64 i = 0; i < k; ++i) {
    if constexpr (std::is_same_v<T, std::uint16_t>)
      out[i] = std::bit_cast<float>(std::uint32_t(in[i * stride]) << 16);
    else
      out[i] = in[i * stride];
  }
  return out;
}

/// m = 1 or n = 1: the other operand is the matrix M of `n` outputs by k.
template <class M, class V, class X, class Y>
void matvec(const Product& p, const Operand& matrix, i64 step, const Operand& vector, i64 vector_step, i64 n,
            i64 y_step) {
  auto& table = matvec_kernels<M, X, Y>();
  i64 k_step = &matrix == &p.b ? matrix.row : matrix.col;
  bool dot = k_step == 1;
  auto kernel = dot ? table.dot : table.columns;
  i64 rows = std::max<i64>(dot ? 16 : 128, round_up(ceil_div(1 << 17, p.k), dot ? 16 : 128));
  for_each_tile(p, ceil_div(n, rows), [&](i64 item, i64 tile) {
    i64 first = tile * rows, count = std::min(rows, n - first);
    auto x = dense_vector<V, X>(p.at(vector, item, 0, 0), p.k, vector_step);
    auto m = reinterpret_cast<const M*>(p.at(matrix, item, 0, 0)) + first * step;
    auto y = reinterpret_cast<Y*>(p.out(item, 0, 0)) + first * y_step;
    kernel(count, p.k, m, dot ? step : k_step, x, y, y_step, p.accumulate);
  });
}

template <class A, class B, class X, class Y>
void matvec(const Product& p) {
  if (p.m == 1)
    matvec<B, A, X, Y>(p, p.b, p.b.col, p.a, p.a.col, p.n, 1);
  else
    matvec<A, B, X, Y>(p, p.a, p.a.row, p.b, p.b.row, p.m, p.c_row);
}

void run_matvec(const Product& p) {
  switch (p.kind) {
    case kF32: return matvec<float, float, float, float>(p);
    case kBf16: return matvec<std::uint16_t, std::uint16_t, float, float>(p);
    case kS8: return matvec<std::int8_t, std::int8_t, std::int16_t, std::int32_t>(p);
    case kU8: return matvec<std::uint8_t, std::int8_t, std::int16_t, std::int32_t>(p);
  }
}

// ---------------------------------------------------------------------------------------------- matrices

/// The primitives of a product: full tiles and the smaller ones at the ends.
class TileSet {
 public:
  TileSet(const Product& p, const Tiles& t, TileKey key) {
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 2; ++j) {
        i64 rest_m = p.m - (t.rows - 1) * t.m, rest_n = p.n - (t.cols - 1) * t.n;
        if ((i == 0 && t.rows == 1 && rest_m < t.m) || (j == 0 && t.cols == 1 && rest_n < t.n)) continue;
        key.m = i ? rest_m : t.m, key.n = j ? rest_n : t.n;
        if (i && rest_m == t.m)
          at_[i][j] = at_[0][j];
        else if (j && rest_n == t.n)
          at_[i][j] = at_[i][0];
        else
          at_[i][j] = tile_product(key);
      }
  }
  TileProduct& get(bool last_row, bool last_col) { return *at_[last_row][last_col]; }

 private:
  std::shared_ptr<TileProduct> at_[2][2];
};

/// Copies an operand with rows and columns swapped, or (`swap` false) as it is, into padded rows in this thread's
/// scratch, and points it there.
template <class T>
void repack(Operand& x, i64 rows, i64 cols, bool swap, Scratch slot, Kernels::Transpose<T> transpose) {
  i64 line = 64 / i64(sizeof(T)), width = round_up(cols, line) + line;  // rows a power of two apart share cache sets
  auto out = static_cast<T*>(thread_scratch(slot, std::size_t(rows * width) * sizeof(T)));
  auto in = reinterpret_cast<const T*>(x.data);
  if (swap)
    parallel_for(cols, 2 * line, [&](i64 begin, i64 end) {
      transpose(end - begin, rows, in + begin * x.col, x.col, out + begin, width);
    });
  else
    parallel_for(rows, 64, [&](i64 begin, i64 end) {
      for (i64 i = begin; i < end; ++i) std::memcpy(out + i * width, in + i * x.row, std::size_t(cols) * sizeof(T));
    });
  x.data = reinterpret_cast<const std::byte*>(out);
  x.row = width, x.col = 1;
}

/// oneDNN copies a transposed operand again for each tile, and slowly; one copy of our own is cheaper where it serves
/// enough arithmetic.
void repack_operands(Product& p) {
  auto& own = kernels();
  if (p.items() != 1 || p.m < 64 || p.n < 64 || p.k < 64) return;
  bool wide = p.n >= (cpu_features().amx_bf16 ? 256 : 512);
  if (p.kind == kF32) {
    bool by_columns = p.b.col != 1;
    if (p.m >= 512 && (by_columns || p.b.row % 1024 == 0))
      repack(p.b, p.k, p.n, by_columns, Scratch::GemmPacked, own.transpose_32);
  } else if (p.a.col != 1 && wide) {
    if (p.kind == kBf16)
      repack(p.a, p.m, p.k, true, Scratch::GemmPacked, own.transpose_16);
    else
      repack(p.a, p.m, p.k, true, Scratch::GemmPacked, own.transpose_8);
  }
}

/// Whether items follow each other as whole matrices do in a dense array.
bool items_in_order(const Operand& x, i64 rows, i64 cols) { return x.batch >= std::max(rows * x.row, cols * x.col); }

/// Many small items: one call for a chunk of them.
void run_small_items(const Product& p) {
  i64 group = items_per_chunk(p), rest = p.items() % group;
  TileKey key{p.kind, p.m, p.n, p.k, p.a.row, p.a.col, p.b.row, p.b.col, p.c_row, p.accumulate};
  key.batch = group, key.a_batch = p.a.batch, key.b_batch = p.b.batch, key.c_batch = p.c_batch;
  auto full = tile_product(key);
  key.batch = rest;
  auto last = rest ? tile_product(key) : full;
  for_chunks(p, ceil_div(p.items(), group), [&](i64 chunk) {
    i64 item = chunk * group;
    (item + group <= p.items() ? full : last)->run(p.at(p.a, item, 0, 0), p.at(p.b, item, 0, 0), p.out(item, 0, 0));
  });
}

void run_onednn(Product p) {
  if (p.outer == 1 && p.batch > 1 && p.item_flops() < 2e5 && items_in_order(p.a, p.m, p.k) &&
      items_in_order(p.b, p.k, p.n) && p.c_batch >= p.m * p.c_row)
    return run_small_items(p);
  repack_operands(p);
  Tiles t = choose_tiles(p.kind, p.m, p.n, p.k);
  TileSet set(p, t, {p.kind, 0, 0, p.k, p.a.row, p.a.col, p.b.row, p.b.col, p.c_row, p.accumulate});
  for_each_tile(p, t.rows * t.cols, [&](i64 item, i64 tile) {
    i64 i = tile / t.cols, j = tile % t.cols;
    set.get(i == t.rows - 1, j == t.cols - 1)
        .run(p.at(p.a, item, i * t.m, 0), p.at(p.b, item, 0, j * t.n), p.out(item, i * t.m, j * t.n));
  });
}

/// bf16 where oneDNN has no kernel for it: each tile's operands as f32.
void run_widened_bf16(const Product& p) {
  Tiles t = choose_tiles(kF32, p.m, p.n, p.k);
  auto widen = kernels().widen_bf16;
  for_each_tile(p, t.rows * t.cols, [&](i64 item, i64 tile) {
    i64 i = tile / t.cols * t.m, j = tile % t.cols * t.n, m = std::min(t.m, p.m - i), n = std::min(t.n, p.n - j);
    auto a = static_cast<float*>(thread_scratch(Scratch::GemmLeft, std::size_t(m * p.k) * sizeof(float)));
    auto b = static_cast<float*>(thread_scratch(Scratch::GemmRight, std::size_t(n * p.k) * sizeof(float)));
    widen(m, p.k, reinterpret_cast<const std::uint16_t*>(p.at(p.a, item, i, 0)), p.a.row, p.a.col, a);
    widen(p.k, n, reinterpret_cast<const std::uint16_t*>(p.at(p.b, item, 0, j)), p.b.row, p.b.col, b);
    tile_product({kF32, m, n, p.k, p.k, 1, n, 1, p.c_row, p.accumulate})->run(a, b, p.out(item, i, j));
  });
}

/// 8-bit values without VNNI: oneDNN's kernels would saturate sums of two products at 16 bits.
void run_widened_i8(const Product& p) {
  Tiles t = choose_tiles(kF32, p.m, p.n, p.k);
  auto& own = kernels();
  for_each_tile(p, t.rows * t.cols, [&](i64 item, i64 tile) {
    i64 i = tile / t.cols * t.m, j = tile % t.cols * t.n, m = std::min(t.m, p.m - i), n = std::min(t.n, p.n - j);
    i64 ld = round_up(p.k, 32);
    std::size_t a_bytes = std::size_t(m * ld) * 2, b_bytes = std::size_t(n * ld) * 2;
    auto a = static_cast<std::int16_t*>(thread_scratch(Scratch::GemmLeft, a_bytes));
    auto b = static_cast<std::int16_t*>(thread_scratch(Scratch::GemmRight, b_bytes));
    if (ld != p.k) std::memset(a, 0, a_bytes), std::memset(b, 0, b_bytes);
    auto a_tile = p.at(p.a, item, i, 0), b_tile = p.at(p.b, item, 0, j);
    if (p.kind == kU8)
      own.widen_u8(m, p.k, reinterpret_cast<const std::uint8_t*>(a_tile), p.a.row, p.a.col, a, ld);
    else
      own.widen_s8(m, p.k, reinterpret_cast<const std::int8_t*>(a_tile), p.a.row, p.a.col, a, ld);
    own.widen_s8(n, p.k, reinterpret_cast<const std::int8_t*>(b_tile), p.b.col, p.b.row, b, ld);
    own.gemm_i16(m, n, ld, a, b, reinterpret_cast<std::int32_t*>(p.out(item, i, j)), p.c_row, p.accumulate);
  });
}

void clear(const Product& p) {
  for (i64 item = 0; item < p.items(); ++item)
    for (i64 i = 0; i < p.m; ++i) std::memset(p.out(item, i, 0), 0, std::size_t(p.n) * 4);
}

Kind kind_of(const GemmArgs& g) {
  if (g.a_type == DType::F32 && g.b_type == DType::F32) return kF32;
  if (g.a_type == DType::BF16 && g.b_type == DType::BF16) return kBf16;
  if (g.a_type == DType::I8 && g.b_type == DType::I8) return kS8;
  if (g.a_type == DType::U8 && g.b_type == DType::I8) return kU8;
  throw Unsupported("[gemm] got " + std::string(to_string(g.a_type)) + " and " + std::string(to_string(g.b_type)) +
                    ", expected f32 and f32, bf16 and bf16, i8 and i8, or u8 and i8");
}

Product check(const GemmArgs& g) {
  if (g.outer < 0 || g.batch < 0 || g.m < 0 || g.n < 0 || g.k < 0)
    throw UserError("[gemm] a size is negative: outer " + std::to_string(g.outer) + ", batch " +
                    std::to_string(g.batch) + ", m " + std::to_string(g.m) + ", n " + std::to_string(g.n) + ", k " +
                    std::to_string(g.k));
  Kind kind = kind_of(g);
  i64 size = kind == kF32 ? 4 : kind == kBf16 ? 2 : 1;
  Product p{.kind = kind,
            .outer = g.outer,
            .batch = g.batch,
            .m = g.m,
            .n = g.n,
            .k = g.k,
            .a = {static_cast<const std::byte*>(g.a), g.a_row, g.a_col, g.a_batch, g.a_outer, size},
            .b = {static_cast<const std::byte*>(g.b), g.b_row, g.b_col, g.b_batch, g.b_outer, size},
            .c = static_cast<std::byte*>(g.c),
            .c_row = g.c_row,
            .c_batch = g.c_batch,
            .c_outer = g.c_outer,
            .accumulate = g.accumulate};
  if (p.batch == 1 && p.outer > 1) {
    p.batch = p.outer, p.outer = 1;
    p.a.batch = p.a.outer, p.b.batch = p.b.outer, p.c_batch = p.c_outer;
  }
  if (p.m > 1 && p.c_row < p.n)
    throw UserError("[gemm] result: got row stride " + std::to_string(p.c_row) +
                    ", expected at least n = " + std::to_string(p.n));
  if (p.m == 1) p.c_row = p.n;
  return p;
}

}  // namespace

void gemm(const GemmArgs& args) {
  Product p = check(args);
  if (p.items() == 0 || p.m == 0 || p.n == 0) return;
  if (p.k == 0) {
    if (!p.accumulate) clear(p);
    return;
  }
  normalize("A", p.m, p.k, p.a.row, p.a.col);
  normalize("B", p.k, p.n, p.b.row, p.b.col);
  if (p.outer == 1 && p.batch > 1 && p.a.batch == p.m * p.k && p.a.col == 1 && p.a.row == p.k && p.b.batch == 0 &&
      p.c_batch == p.m * p.c_row) {  // the items are rows of one product
    p.m *= p.batch;
    p.batch = 1;
  }
  try {
    if (p.m == 1 || p.n == 1)
      run_matvec(p);
    else if (p.kind == kBf16 && !cpu_features().avx512)
      run_widened_bf16(p);
    else if ((p.kind == kS8 || p.kind == kU8) && !cpu_features().vnni)
      run_widened_i8(p);
    else
      run_onednn(p);
  } catch (const dnnl::error& e) {
    throw InternalError("[gemm] oneDNN: " + std::string(e.what()) + " (m " + std::to_string(p.m) + ", n " +
                        std::to_string(p.n) + ", k " + std::to_string(p.k) + ")");
  }
}

}  // namespace rlx::cpu
