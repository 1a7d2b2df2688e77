// Picks the kernels of the instruction set at hand.
#include "backends/cpu/kernels.h"

#include <string>

#include "rlx/base.h"

namespace rlx::cpu {

namespace portable {
extern const Kernels table;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Kernels table;
}
namespace avx512 {
extern const Kernels table;
}
#endif

const Kernels& kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::Avx512) return avx512::table;
  if (isa == Isa::Avx2) return avx2::table;
#endif
  if (isa != Isa::Portable) throw InternalError("[cpu] no kernels for " + std::string(to_string(isa)));
  return portable::table;
}

const Kernels& kernels() { return kernels(cpu_features().isa); }

}  // namespace rlx::cpu
