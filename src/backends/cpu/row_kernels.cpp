// Which compilation of the row kernels runs here, and which loop an op has.
#include "backends/cpu/row_kernels.h"

#include <map>

#include "rlx/ops.h"

namespace rlx::cpu {

namespace portable {
const RowKernels& row_kernel_table();
}
#if defined(__x86_64__)
namespace avx2 {
const RowKernels& row_kernel_table();
}
namespace avx512 {
const RowKernels& row_kernel_table();
}
#endif

const RowKernels& row_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::Avx512) return avx512::row_kernel_table();
  if (isa == Isa::Avx2) return avx2::row_kernel_table();
#endif
  (void)isa;
  return portable::row_kernel_table();
}

const RowKernels& row_kernels() {
  static const RowKernels& table = row_kernels(cpu_features().isa);
  return table;
}

int unary_id(const OpDef& op) {
  static const std::map<const OpDef*, int> ids = {
#define UNARY(name, ...) {&ops::name, kUnary_##name},
#include "ops/ops.def"
  };
  auto it = ids.find(&op);
  return it == ids.end() ? -1 : it->second;
}

int binary_id(const OpDef& op) {
  static const std::map<const OpDef*, int> ids = {
#define BINARY(name, ...) {&ops::name, kBinary_##name},
#include "ops/ops.def"
  };
  auto it = ids.find(&op);
  return it == ids.end() ? -1 : it->second;
}

}  // namespace rlx::cpu
