// Our own kernels, compiled once per instruction set (kernels_impl.cpp), behind one table of functions. Every set
// gives the same bits.
#pragma once
#include <cstdint>

#include "backends/cpu/isa.h"

namespace rlx::cpu {

/// y[i * y_stride] (+)= Σ_k M(i, k) · x[k] for i in [0, n), M(i, k) = m[i * stride + k] in the `dot` form and
/// m[k * stride + i] in the `columns` form. X and Y are f32 for f32 and bf16 matrices, i32 for 8-bit ones (x widened to
/// i16 beforehand). The order of the sums depends on n and k only.
template <class M, class X, class Y>
struct MatrixVector {
  using Function = void (*)(std::int64_t n, std::int64_t k, const M* m, std::int64_t stride, const X* x, Y* y,
                            std::int64_t y_stride, bool accumulate);
  Function dot, columns;
};

struct Kernels {
  MatrixVector<float, float, float> matvec_f32;
  MatrixVector<std::uint16_t, float, float> matvec_bf16;
  MatrixVector<std::int8_t, std::int16_t, std::int32_t> matvec_s8;
  MatrixVector<std::uint8_t, std::int16_t, std::int32_t> matvec_u8;

  /// out[r * cols + c] = in[r * row + c * col] widened; one of row and col is 1.
  void (*widen_bf16)(std::int64_t rows, std::int64_t cols, const std::uint16_t* in, std::int64_t row, std::int64_t col,
                     float* out);
  void (*widen_s8)(std::int64_t rows, std::int64_t cols, const std::int8_t* in, std::int64_t row, std::int64_t col,
                   std::int16_t* out, std::int64_t out_row);
  void (*widen_u8)(std::int64_t rows, std::int64_t cols, const std::uint8_t* in, std::int64_t row, std::int64_t col,
                   std::int16_t* out, std::int64_t out_row);
  /// c[i * c_row + j] (+)= Σ_k a[i * k + …] · b[j * k + …], exact modulo 2^32; products of widened 8-bit values only.
  void (*gemm_i16)(std::int64_t m, std::int64_t n, std::int64_t k, const std::int16_t* a, const std::int16_t* b,
                   std::int32_t* c, std::int64_t c_row, bool accumulate);
  /// out[c * out_row + r] = in[r * in_row + c], of elements of so many bits
  template <class T>
  using Transpose = void (*)(std::int64_t rows, std::int64_t cols, const T* in, std::int64_t in_row, T* out,
                             std::int64_t out_row);
  Transpose<std::uint32_t> transpose_32;
  Transpose<std::uint16_t> transpose_16;
  Transpose<std::uint8_t> transpose_8;
};

/// The table for this CPU (see cpu_features).
const Kernels& kernels();
/// That of a given set, which the CPU must have.
const Kernels& kernels(Isa);

}  // namespace rlx::cpu
