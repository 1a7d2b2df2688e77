// Detects instruction sets with CPUID (and that the operating system saves their registers).
//
//   RLX_CPU_ISA | kernels of our own            | oneDNN at most | bf16, int8 matmul
//   ------------|-------------------------------|----------------|-------------------------------------
//   (unset)     | the best the CPU has          | what it finds  | oneDNN where exact and native
//   avx512      | AVX-512                       | what it finds  | the same
//   avx2        | AVX2, FMA                     | AVX2           | own: through f32; exact 16-bit pairs
//   portable    | x86-64-v2 (SSE4.2)            | SSE4.1         | the same
//
// A value above what the CPU has means what it has.
#include "backends/cpu/isa.h"

#include <string>

#include "base/env.h"
#include "rlx/base.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace rlx::cpu {
namespace detail {

CpuFeatures detect_cpu() {
  CpuFeatures found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  found.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  found.avx512 = found.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vl");
  found.vnni = found.avx512 && __builtin_cpu_supports("avx512vnni");
  found.bf16 = found.avx512 && __builtin_cpu_supports("avx512bf16");
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (found.avx512 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1)) {
    unsigned low = 0, high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    bool saved = (low >> 17 & 3) == 3;  // tile configuration and tile data
    found.amx_int8 = saved && (d >> 25 & 1);
    found.amx_bf16 = saved && (d >> 22 & 1);
  }
  found.isa = found.avx512 ? Isa::Avx512 : found.avx2 ? Isa::Avx2 : Isa::Portable;
#endif
  return found;
}

CpuFeatures limit_cpu(CpuFeatures found, std::string_view value) {
  if (value.empty() || value == "avx512") return found;
  if (value != "avx2" && value != "portable")
    throw UserError("[cpu] RLX_CPU_ISA: got \"" + std::string(value) + "\", expected portable, avx2 or avx512");
  CpuFeatures limited;
  limited.avx2 = value == "avx2" && found.avx2;
  limited.isa = limited.avx2 ? Isa::Avx2 : Isa::Portable;
  return limited;
}

}  // namespace detail

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = [] {
    return detail::limit_cpu(detail::detect_cpu(), env("RLX_CPU_ISA"));
  }();
  return features;
}

std::string_view to_string(Isa isa) { return isa == Isa::Avx512 ? "avx512" : isa == Isa::Avx2 ? "avx2" : "portable"; }

}  // namespace rlx::cpu
