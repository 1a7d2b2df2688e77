#include "backends/cpu/row_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "base/sum.h"

namespace rlx::cpu {
namespace {

constexpr i64 kTile = 2048;          // elements of a register: a few of them fit the nearest cache
constexpr i64 kMostChunks = 64;      // the work is cut by the shape, never by the number of threads
constexpr i64 kSerialWork = 1 << 15; // elements × instructions below which a thread hand-over costs more than it gains

i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }

}  // namespace

Space Access::space() const {
  bool by_row = linear ? row_stride != 0 : true;
  return Space((by_row ? 1 : 0) | (column_stride != 0 ? 2 : 0));
}

Access make_access(const View& view, DType dtype) {
  Access out{view.buffer, dtype, view.offset, 0, {}, {}, false, 0};
  if (!view.shape.empty() && view.shape.back() != 1) out.column_stride = view.strides.back();
  for (std::size_t d = 0; d + 1 < view.shape.size(); ++d) {
    if (view.shape[d] == 1) continue;
    if (!out.lead.empty() && out.lead_strides.back() == view.strides[d] * view.shape[d]) {
      out.lead.back() *= view.shape[d];
      out.lead_strides.back() = view.strides[d];
    } else {
      out.lead.push_back(view.shape[d]);
      out.lead_strides.push_back(view.strides[d]);
    }
  }
  out.linear = out.lead.size() <= 1;
  if (out.lead.size() == 1) out.row_stride = out.lead_strides[0];
  if (!out.linear && std::ranges::all_of(out.lead_strides, [](i64 s) { return s == 0; })) out.linear = true;
  return out;
}

// ---------------------------------------------------------------------------------------------- tiles and registers

// Makes one long row of a program in which rows mean nothing.
void RowProgram::flatten() {
  for (auto& i : code)
    if (i.op == Instr::Op::ReduceRow || i.op == Instr::Op::TakeColumn || i.op == Instr::Op::SumRows || i.op == Instr::Op::Iota) return;
  auto each = [&](auto&& f) {
    for (auto& a : loads) f(a);
    for (auto& a : stores) f(a);
  };
  bool dense = true;
  each([&](Access& a) {
    bool scalar = a.linear && a.row_stride == 0 && a.column_stride == 0;
    if (columns == 1) dense &= a.linear;
    else dense &= scalar || (a.linear && a.column_stride == 1 && (rows == 1 || a.row_stride == columns));
  });
  if (!dense) return;
  each([&](Access& a) {
    if (columns == 1) a.column_stride = a.row_stride;
    a.row_stride = 0;
    a.lead.clear(), a.lead_strides.clear();
  });
  columns *= rows;
  rows = 1;
  // Every value now varies by column or not at all.
  for (auto& s : registers) s = s == Space::Scalar ? Space::Scalar : Space::Full;
}

void RowProgram::share_slots() {
  auto size_of_slot = [&](Space s) {
    i64 n = (std::uint8_t(s) & 1 ? tile_rows_ : 1) * (std::uint8_t(s) & 2 ? tile_columns_ : 1);
    return (n + 15) / 16 * 16;
  };
  std::vector<int> last_use(registers.size(), -1);
  for (int i = 0; i < int(code.size()); ++i)
    for (int s : code[std::size_t(i)].src)
      if (s >= 0) last_use[std::size_t(s)] = i;
  std::vector<std::pair<i64, i64>> free;  // size, place
  slot_.assign(registers.size(), 0);
  for (int i = 0; i < int(code.size()); ++i) {
    auto& instr = code[std::size_t(i)];
    for (int s : instr.src)  // first free what dies here: loops may work in place
      if (s >= 0 && last_use[std::size_t(s)] == i) {
        last_use[std::size_t(s)] = -2;
        // A reduction, and a select or binary loop over rows, reads its operands again for the next row of a narrower
        // value; only equal spaces may share.
        if (instr.dst < 0 || registers[std::size_t(s)] == registers[std::size_t(instr.dst)])
          free.emplace_back(size_of_slot(registers[std::size_t(s)]), slot_[std::size_t(s)]);
      }
    if (instr.dst < 0) continue;
    i64 want = size_of_slot(registers[std::size_t(instr.dst)]);
    auto it = std::ranges::find_if(free, [&](auto& f) { return f.first == want; });
    if (it != free.end()) {
      slot_[std::size_t(instr.dst)] = it->second;
      free.erase(it);
    } else {
      slot_[std::size_t(instr.dst)] = scratch_size_;
      scratch_size_ += want;
    }
  }
}

void RowProgram::finish() {
  flatten();
  for (auto& i : code) whole_rows_ |= i.op == Instr::Op::ReduceRow || i.op == Instr::Op::TakeColumn;
  bool sums_all = std::ranges::any_of(accumulators, [](auto& a) { return a.all; });
  i64 tile = sums_all ? kSumChunk : kTile;
  tile_columns_ = whole_rows_ ? std::max<i64>(columns, 1) : std::clamp<i64>(columns, 1, tile);
  tile_rows_ = std::clamp<i64>(tile / tile_columns_, 1, std::max<i64>(rows, 1));
  column_tiles_ = ceil_div(columns, tile_columns_);
  row_tiles_ = ceil_div(rows, tile_rows_);
  tiles_per_chunk_ = std::max<i64>(1, ceil_div(column_tiles_ * row_tiles_, kMostChunks));
  // A value is computed right where its first store wants it, unless it is itself memory.
  std::vector<bool> loaded(registers.size()), placed(registers.size());
  stored_in_place_.assign(stores.size(), false);
  for (auto& i : code) {
    if (i.op == Instr::Op::Load) loaded[std::size_t(i.dst)] = true;
    if (i.op != Instr::Op::Store) continue;
    auto r = std::size_t(i.src[0]);
    if (!loaded[r] && !placed[r] && stores[std::size_t(i.id)].dtype == DType::F32) placed[r] = stored_in_place_[std::size_t(i.id)] = true;
  }
  share_slots();
}

// ---------------------------------------------------------------------------------------------- running

class RowProgram::Runner {
 public:
  Runner(const RowProgram& program, std::byte* const* buffers) : p_(program), buffers_(buffers), k_(row_kernels()), registers_(program.registers.size()) {
    // Scratch is kept by the thread: fresh pages cost more than the work on them.
    static thread_local std::vector<float> memory;
    auto need = std::size_t(p_.scratch_size_ + 2 * p_.tile_rows_ * p_.tile_columns_ + 16);
    if (memory.size() < need) memory.resize(need);
    auto at = reinterpret_cast<std::uintptr_t>(memory.data());
    scratch_ = reinterpret_cast<float*>((at + 63) / 64 * 64);
    spare_ = scratch_ + p_.scratch_size_;
  }

  void run(const Tile& tile, double* sums, float* column_sums) {
    t_ = tile;
    place_registers();
    for (auto& instr : p_.code) step(instr, sums, column_sums);
  }

 private:
  bool by_row(int r) const { return std::uint8_t(p_.registers[std::size_t(r)]) & 1; }
  bool by_column(int r) const { return std::uint8_t(p_.registers[std::size_t(r)]) & 2; }
  i64 offset_of_row(const Access& a, i64 row) const {
    if (a.linear) return a.offset + row * a.row_stride;
    i64 out = a.offset;
    for (std::size_t d = a.lead.size(); d-- > 0; row /= a.lead[d]) out += row % a.lead[d] * a.lead_strides[d];
    return out;
  }
  std::byte* memory(const Access& a, i64 row) const {
    return buffers_[a.buffer] + (offset_of_row(a, row) + t_.column * a.column_stride) * i64(size_of(a.dtype));
  }
  // Where a register can be the memory itself: f32, whose columns lie side by side and whose rows are evenly spaced.
  bool is_direct(const Access& a, int r) const {
    if (a.dtype != DType::F32 || (t_.rows > 1 && !a.linear)) return false;
    switch (p_.registers[std::size_t(r)]) {
      case Space::Full: return a.column_stride == 1;
      case Space::Col: return a.column_stride == 1;
      case Space::Row: return t_.rows == 1 || a.row_stride == 1;
      case Space::Scalar: return true;
    }
    return false;
  }
  void place_registers() {
    for (std::size_t r = 0; r < registers_.size(); ++r) registers_[r] = {scratch_ + p_.slot_[r], by_row(int(r)) ? (by_column(int(r)) ? t_.columns : 1) : 0};
    for (auto& i : p_.code) {
      if (i.op == Instr::Op::Load) {
        auto& a = p_.loads[std::size_t(i.id)];
        if (is_direct(a, i.dst)) registers_[std::size_t(i.dst)] = {reinterpret_cast<float*>(memory(a, t_.row)), by_column(i.dst) && by_row(i.dst) ? a.row_stride : 1};
      } else if (i.op == Instr::Op::Store && p_.stored_in_place_[std::size_t(i.id)]) {
        auto& a = p_.stores[std::size_t(i.id)];
        if (p_.registers[std::size_t(i.src[0])] == Space::Full && is_direct(a, i.src[0])) registers_[std::size_t(i.src[0])] = {reinterpret_cast<float*>(memory(a, t_.row)), a.row_stride};
      }
    }
  }
  float* at_row(int r, i64 row) const {
    auto& reg = registers_[std::size_t(r)];
    if (!by_row(r)) return reg.data;
    return by_column(r) ? reg.data + row * reg.row_stride : reg.data + row;
  }
  bool is_dense(int r) const { return p_.registers[std::size_t(r)] == Space::Full && (t_.rows == 1 || registers_[std::size_t(r)].row_stride == t_.columns); }

  // Calls f(out, operand pointers, steps, n): once where everything lies side by side, else row by row. A step is 0 for
  // an operand that is one number during the call.
  template <class F> void over_rows(const Instr& i, F&& f) {
    const float* in[3] = {};
    bool one_number[3] = {};
    Space space = p_.registers[std::size_t(i.dst)];
    bool dense = space != Space::Full || is_dense(i.dst);
    for (int k = 0; k < 3; ++k)
      if (i.src[k] >= 0) {
        Space s = p_.registers[std::size_t(i.src[k])];
        if (space == Space::Full) {
          dense &= s == Space::Scalar || is_dense(i.src[k]) || (t_.rows == 1 && s == Space::Col);
          one_number[k] = !by_column(i.src[k]);
        } else {
          one_number[k] = s == Space::Scalar && space != Space::Scalar;
        }
      }
    if (dense) {
      for (int k = 0; k < 3; ++k)
        if (i.src[k] >= 0) in[k] = at_row(i.src[k], 0);
      i64 n = space == Space::Full ? t_.rows * t_.columns : space == Space::Row ? t_.rows : space == Space::Col ? t_.columns : 1;
      return f(at_row(i.dst, 0), in, one_number, n);
    }
    for (i64 row = 0; row < t_.rows; ++row) {
      for (int k = 0; k < 3; ++k)
        if (i.src[k] >= 0) in[k] = at_row(i.src[k], row);
      f(at_row(i.dst, row), in, one_number, t_.columns);
    }
  }

  void step(const Instr& i, double* sums, float* column_sums) {
    using Op = Instr::Op;
    switch (i.op) {
      case Op::Load: return load(p_.loads[std::size_t(i.id)], i.dst);
      case Op::Store: return store(p_.stores[std::size_t(i.id)], i.src[0], p_.stored_in_place_[std::size_t(i.id)]);
      case Op::Constant: return void(*at_row(i.dst, 0) = i.number);
      case Op::Iota: return k_.iota(at_row(i.dst, 0), t_.column, t_.columns);
      case Op::Unary:
        return over_rows(i, [&](float* out, const float** in, const bool* one, i64 n) {
          k_.unary[i.id](out, in[0], one[0] ? 1 : n);
          if (one[0]) k_.fill(out, out[0], n);
        });
      case Op::Binary:
        return over_rows(i, [&](float* out, const float** in, const bool* one, i64 n) {
          auto& b = k_.binary[i.id];
          if (one[0] && one[1]) b.vv(out, in[0], in[1], 1), k_.fill(out, out[0], n);
          else (one[0] ? b.sv : one[1] ? b.vs : b.vv)(out, in[0], in[1], n);
        });
      case Op::Select:
        return over_rows(i, [&](float* out, const float** in, const bool* one, i64 n) {
          const float* c = in[0];
          if (one[0]) k_.fill(spare_, *c, n), c = spare_;
          k_.select(out, c, in[1], !one[1], in[2], !one[2], n);
        });
      case Op::Round:
        return over_rows(i, [&](float* out, const float** in, const bool*, i64 n) { (i.dtype == DType::BF16 ? k_.round_bf16 : k_.round_f16)(out, in[0], n); });
      case Op::ReduceRow:
        for (i64 row = 0; row < t_.rows; ++row) *at_row(i.dst, row) = k_.reduce[i.id](full_row(i.src[0], row), t_.columns) / i.number;
        return;
      case Op::TakeColumn: return take_column(i);
      case Op::SumAll:
        for (i64 row = 0; row < t_.rows; ++row) sums[i.id] += sum_f64(full_row(i.src[0], row), t_.columns);
        return;
      case Op::SumRows:
        for (i64 row = 0; row < t_.rows; ++row) k_.add_to(column_sums + i.id * p_.columns + t_.column, full_row(i.src[0], row), t_.columns);
        return;
    }
  }
  // A row with all its columns, also of a value that does not vary along them.
  const float* full_row(int r, i64 row) {
    if (by_column(r) || t_.columns == 1) return at_row(r, row);
    k_.fill(spare_, *at_row(r, row), t_.columns);
    return spare_;
  }
  void take_column(const Instr& i) {
    i64 least = i.number != 0 ? -t_.columns : 0;
    for (i64 row = 0; row < t_.rows; ++row) {
      float index = *at_row(i.src[1], row);
      if (!(index >= float(least) && index < float(t_.columns)))
        throw UserError(fmt::format("[gather_elements] index {:.0f} of row {} is out of range [{}, {}) (at {})", index, t_.row + row, least,
                                    t_.columns, p_.places[std::size_t(i.id)]));
      *at_row(i.dst, row) = full_row(i.src[0], row)[i64(index) + (index < 0 ? t_.columns : 0)];
    }
  }

  void load(const Access& a, int r) {
    if (is_direct(a, r)) return;
    i64 rows = by_row(r) ? t_.rows : 1, n = by_column(r) ? t_.columns : 1;
    if (!by_column(r) && a.linear) return convert(at_row(r, 0), memory(a, t_.row), a.dtype, a.row_stride, rows);
    for (i64 row = 0; row < rows; ++row) convert(at_row(r, row), memory(a, t_.row + row), a.dtype, a.column_stride, n);
  }
  void convert(float* out, const std::byte* in, DType dtype, i64 stride, i64 n) {
    switch (dtype) {
      case DType::F32: return k_.copy_strided(out, reinterpret_cast<const float*>(in), stride, n);
      case DType::BF16: return k_.load_bf16(out, in, stride, n);
      case DType::F16: return k_.load_f16(out, in, stride, n);
      case DType::I8: return k_.load_i8(out, in, stride, n);
      case DType::U8:
      case DType::Bool: return k_.load_u8(out, in, stride, n);
      case DType::I32: return k_.load_i32(out, in, stride, n);
      case DType::I64: return k_.load_i64(out, in, stride, n);
      default: throw InternalError(fmt::format("[{}] a row program cannot load {}", p_.name, to_string(dtype)));
    }
  }
  void store(const Access& a, int r, bool in_place) {
    if (in_place && p_.registers[std::size_t(r)] == Space::Full && is_direct(a, r)) return;
    for (i64 row = 0; row < t_.rows; ++row) {
      bool one = a.column_stride == 0;  // one value a row
      unconvert(memory(a, t_.row + row), a.dtype, a.column_stride, one ? at_row(r, row) : full_row(r, row), one ? 1 : t_.columns);
    }
  }
  void unconvert(std::byte* out, DType dtype, i64 stride, const float* x, i64 n) {
    switch (dtype) {
      case DType::F32: return k_.store_f32(out, stride, x, n);
      case DType::BF16: return k_.store_bf16(out, stride, x, n);
      case DType::F16: return k_.store_f16(out, stride, x, n);
      case DType::I8: return k_.store_i8(out, stride, x, n);
      case DType::Bool: return k_.store_bool(out, stride, x, n);
      default: throw InternalError(fmt::format("[{}] a row program cannot store {}", p_.name, to_string(dtype)));
    }
  }

  const RowProgram& p_;
  std::byte* const* buffers_;
  const RowKernels& k_;
  std::vector<Register> registers_;
  float* scratch_ = nullptr;
  float* spare_ = nullptr;
  Tile t_{};
};

namespace {

void write_result(std::byte* out, DType dtype, i64 i, double value) {
  switch (dtype) {
    case DType::F64: reinterpret_cast<double*>(out)[i] = value; return;
    case DType::F32: reinterpret_cast<float*>(out)[i] = float(value); return;
    case DType::BF16: reinterpret_cast<bf16*>(out)[i] = bf16(value); return;
    case DType::F16: reinterpret_cast<f16*>(out)[i] = f16(value); return;
    default: throw InternalError("a row program cannot sum into another dtype");
  }
}

}  // namespace

void RowProgram::run(std::byte* const* buffers) const {
  i64 tiles = row_tiles_ * column_tiles_, chunks = ceil_div(tiles, tiles_per_chunk_), kinds = i64(accumulators.size());
  bool any_columns = std::ranges::any_of(accumulators, [](auto& a) { return !a.all; });
  std::vector<double> sums(std::size_t(tiles * kinds));
  std::vector<float> column_sums(any_columns ? std::size_t(chunks * kinds * columns) : 0);
  auto run_chunk = [&](i64 chunk) {
    Runner runner(*this, buffers);
    for (i64 t = chunk * tiles_per_chunk_; t < std::min(tiles, (chunk + 1) * tiles_per_chunk_); ++t) {
      i64 row = t / column_tiles_ * tile_rows_, column = t % column_tiles_ * tile_columns_;
      runner.run({row, std::min(tile_rows_, rows - row), column, std::min(tile_columns_, columns - column)}, sums.data() + t * kinds,
                 column_sums.data() + (any_columns ? chunk * kinds * columns : 0));
    }
  };
  if (rows * columns * i64(code.size()) < kSerialWork)
    for (i64 c = 0; c < chunks; ++c) run_chunk(c);
  else parallel_for(chunks, run_chunk);

  for (i64 k = 0; k < kinds; ++k) {
    auto& acc = accumulators[std::size_t(k)];
    std::byte* out = buffers[acc.buffer];
    if (acc.all) {
      double total = 0;
      for (i64 t = 0; t < tiles; ++t) total += sums[std::size_t(t * kinds + k)];
      write_result(out, acc.dtype, 0, total / acc.divisor);
    } else {
      for (i64 c = 0; c < columns; ++c) {
        double total = 0;
        for (i64 chunk = 0; chunk < chunks; ++chunk) total += column_sums[std::size_t((chunk * kinds + k) * columns + c)];
        write_result(out, acc.dtype, c, total / acc.divisor);
      }
    }
  }
}

}  // namespace rlx::cpu
