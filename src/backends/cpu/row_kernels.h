// The loops that a row program is made of, compiled once per instruction set (row_kernels_impl.cpp).
#pragma once
#include <cstdint>

#include "backends/cpu/isa.h"

namespace rlx {
struct OpDef;
}

namespace rlx::cpu {

// The numbers of the elementwise ops that have a loop, in the order of the op table.
enum UnaryId : int {
#define UNARY(name, ...) kUnary_##name,
#include "ops/ops.def"
  kUnaryCount
};
enum BinaryId : int {
#define BINARY(name, ...) kBinary_##name,
#include "ops/ops.def"
  kBinaryCount
};
enum class Reduction : int { Sum, Max, Min, Prod };

using i64 = std::int64_t;

/// Booleans are 0 and 1 in f32. Every loop may work in place.
struct RowKernels {
  using Unary = void (*)(float* out, const float* x, i64 n);
  using Binary = void (*)(float* out, const float* a, const float* b, i64 n);
  Unary unary[kUnaryCount] = {};  // null: only for integers
  struct {
    Binary vv = nullptr, vs = nullptr, sv = nullptr;  // s: one number for all
  } binary[kBinaryCount] = {};
  /// out = c != 0 ? a : b; a_step and b_step are 1, or 0 for one number.
  void (*select)(float* out, const float* c, const float* a, i64 a_step, const float* b, i64 b_step, i64 n) = nullptr;
  float (*reduce[4])(const float* x, i64 n) = {};
  /// acc[i] += x[i]
  void (*add_to)(float* acc, const float* x, i64 n) = nullptr;
  void (*fill)(float* out, float value, i64 n) = nullptr;
  void (*iota)(float* out, i64 first, i64 n) = nullptr;
  void (*copy_strided)(float* out, const float* x, i64 stride, i64 n) = nullptr;
  // Rounding to 16 bits and back, in place of a store and a load.
  void (*round_bf16)(float* out, const float* x, i64 n) = nullptr;
  void (*round_f16)(float* out, const float* x, i64 n) = nullptr;
  // Memory of other dtypes. Into integers: towards zero, saturating, NaN gives 0; into bool: whether not 0.
  void (*load_bf16)(float* out, const void* x, i64 stride, i64 n) = nullptr;
  void (*load_f16)(float* out, const void* x, i64 stride, i64 n) = nullptr;
  void (*load_i8)(float* out, const void* x, i64 stride, i64 n) = nullptr;
  void (*load_u8)(float* out, const void* x, i64 stride, i64 n) = nullptr;  // and bool
  void (*load_i32)(float* out, const void* x, i64 stride, i64 n) = nullptr;
  void (*load_i64)(float* out, const void* x, i64 stride, i64 n) = nullptr;
  void (*store_f32)(void* out, i64 stride, const float* x, i64 n) = nullptr;
  void (*store_bf16)(void* out, i64 stride, const float* x, i64 n) = nullptr;
  void (*store_f16)(void* out, i64 stride, const float* x, i64 n) = nullptr;
  void (*store_i8)(void* out, i64 stride, const float* x, i64 n) = nullptr;
  void (*store_bool)(void* out, i64 stride, const float* x, i64 n) = nullptr;
};

const RowKernels& row_kernels();          // for this CPU
const RowKernels& row_kernels(Isa);       // that of a set, which the CPU must have
/// The number of an op's loop, or -1.
int unary_id(const OpDef& op);
int binary_id(const OpDef& op);

}  // namespace rlx::cpu
