// Dense matrix product on the CPU: fixed tiles, one single-threaded kernel call a tile, so that the bits do not depend
// on the number of threads.
#pragma once
#include <cstdint>

#include "rlx/base.h"

namespace rlx::cpu {

/// C[m,n] (+)= A[m,k] · B[k,n] for each of outer × batch items. Strides are in elements; element (i, j) of A's item
/// (s, t) stands at a[s * a_outer + t * a_batch + i * a_row + j * a_col]. In A and B one of row and col stride must be
/// 1 (or the axis has one element); a batch or outer stride of 0 repeats the operand. C's columns are contiguous, its
/// items do not overlap, and it overlaps neither operand.
struct GemmArgs {
  DType a_type = DType::F32, b_type = DType::F32;  // f32·f32 → f32, bf16·bf16 → f32, i8·i8 and u8·i8 → i32
  std::int64_t outer = 1, batch = 1, m = 0, n = 0, k = 0;
  const void* a = nullptr;
  std::int64_t a_row = 0, a_col = 1, a_batch = 0, a_outer = 0;
  const void* b = nullptr;
  std::int64_t b_row = 0, b_col = 1, b_batch = 0, b_outer = 0;
  void* c = nullptr;
  std::int64_t c_row = 0, c_batch = 0, c_outer = 0;
  bool accumulate = false;  // adds to C instead of replacing it
};

/// Any size may be zero; k = 0 gives zeros, or leaves C as it is with `accumulate`. f32 and bf16 accumulate in f32
/// (bf16 products are exact), 8-bit types exactly in i32, modulo 2^32. Runs on the pool of parallel_for from about 0.5
/// MFLOP. Throws Unsupported for other dtypes, UserError for strides or sizes it cannot have.
void gemm(const GemmArgs&);

}  // namespace rlx::cpu
