// A fused kernel: an elementwise chain with reductions along the last axis, run tile by tile over rows × columns, so
// that what lies between its loads and its stores stays in the nearest cache.
#pragma once
#include <memory>

#include "backends/cpu/row_kernels.h"
#include "backends/cpu/view.h"

namespace rlx::cpu {

/// How a value varies: with row and column, with one of them, or not at all.
enum class Space : std::uint8_t { Scalar, Row, Col, Full };
inline Space join(Space a, Space b) { return Space(std::uint8_t(a) | std::uint8_t(b)); }

/// An operand in memory, laid over the rows and columns of the program.
struct Access {
  int buffer = -1;
  DType dtype = DType::F32;
  std::int64_t offset = 0, column_stride = 0;
  Extents lead, lead_strides;     // how a row number becomes an offset
  bool linear = false;            // row · row_stride is that offset
  std::int64_t row_stride = 0;
  Space space() const;
};
/// Reads the last axis as columns. For a value of one element a row, `view` has a last axis of size 1.
Access make_access(const View& view, DType dtype);

struct Instr {
  enum class Op : std::uint8_t { Load, Store, Constant, Iota, Unary, Binary, Select, Round, ReduceRow, TakeColumn, SumAll, SumRows };
  Op op = Op::Load;
  int id = 0;              // of the unary or binary kernel; the reduction; the access; the accumulator; the place
  int dst = -1;
  int src[3] = {-1, -1, -1};
  float number = 0;        // Constant; ReduceRow: what the result is divided by (n of a mean); TakeColumn: whether negative indices wrap
  DType dtype = DType::F32;  // Round
};

/// A sum over all rows: of each column (f32) or of everything (f64, in the order of base/sum.h where the program is flat).
struct Accumulator {
  bool all = false;
  int buffer = -1;         // of the result
  DType dtype = DType::F32;
  double divisor = 1;      // of a mean
};

struct RowProgram {
  std::string name;
  std::int64_t rows = 0, columns = 0;
  std::vector<Instr> code;
  std::vector<Access> loads, stores;
  std::vector<Space> registers;
  std::vector<Accumulator> accumulators;
  std::vector<std::string> places;  // what an error of a TakeColumn says of its node

  /// Decides the tiles and where registers live; call once, when the code is complete.
  void finish();
  /// `buffers` gives the memory of each buffer number.
  void run(std::byte* const* buffers) const;

 private:
  struct Tile {
    std::int64_t row, rows, column, columns;
  };
  struct Register {  // a register's place while a tile runs
    float* data = nullptr;
    std::int64_t row_stride = 0;
  };
  class Runner;
  void flatten();
  void share_slots();

  bool whole_rows_ = false;              // a row cannot be cut into tiles
  std::int64_t tile_rows_ = 1, tile_columns_ = 1, tiles_per_chunk_ = 1, column_tiles_ = 1, row_tiles_ = 1;
  std::vector<bool> stored_in_place_;    // a store whose value is computed right in memory
  std::vector<std::int64_t> slot_;       // of a register in the scratch, in elements
  std::int64_t scratch_size_ = 0;
};

}  // namespace rlx::cpu
