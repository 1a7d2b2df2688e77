// What the CPU at hand can do, and which set of our own kernels runs on it.
#pragma once
#include <string_view>

namespace rlx::cpu {

/// The sets our own kernels are compiled for. Portable is x86-64-v2 on x86 and the compiler's default elsewhere.
enum class Isa { Portable, Avx2, Avx512 };

struct CpuFeatures {
  Isa isa = Isa::Portable;  // the best set that may be used; the flags below never exceed it
  bool avx2 = false;        // with FMA and F16C
  bool avx512 = false;      // F, BW, CD, DQ, VL
  bool vnni = false;        // AVX-512 VNNI
  bool bf16 = false;        // AVX-512 BF16
  bool amx_int8 = false;
  bool amx_bf16 = false;
};

/// What is there, cut down to what RLX_CPU_ISA allows. Throws UserError on a value it does not know.
const CpuFeatures& cpu_features();

namespace detail {
CpuFeatures detect_cpu();
/// `value` is the text of RLX_CPU_ISA; empty means no limit.
CpuFeatures limit_cpu(CpuFeatures found, std::string_view value);
}  // namespace detail

std::string_view to_string(Isa);

}  // namespace rlx::cpu
