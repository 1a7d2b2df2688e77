#include "backends/cpu/quant_kernels.h"

#include "rlx/base.h"

namespace rlx::cpu {

#if defined(__x86_64__)
namespace avx2 {
extern const QuantKernels quant_table;
}
namespace avx512 {
extern const QuantKernels quant_table;
}
#endif
namespace portable {
extern const QuantKernels quant_table;
}

FloatCode float_code(Format format) {
  using Specials = FormatInfo::Specials;
  const FormatInfo& f = info(format);
  FloatCode out{
      .bits = f.bits, .mantissa_bits = f.mantissa_bits, .bias = f.bias, .max_code = std::uint32_t(f.max_code)};
  out.nan_code = encode(format, std::numeric_limits<double>::quiet_NaN());
  out.is_fnuz = f.specials == Specials::Fnuz, out.is_ieee = f.specials == Specials::Ieee, out.has_nan = f.has_nan();
  out.max = float(f.max), out.min_normal = float(f.min_normal);
  out.min_subnormal = f.mantissa_bits ? float(f.min_subnormal) : out.min_normal;
  return out;
}

bool has_fast_decode(Format f) { return info(f).is_float() && f != Format::E8M0; }
bool has_fast_encode(Format f) { return has_fast_decode(f) && info(f).mantissa_bits > 0; }

const QuantKernels& quant_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::Avx512) return avx512::quant_table;
  if (isa == Isa::Avx2) return avx2::quant_table;
#endif
  if (isa != Isa::Portable) throw InternalError("[cpu] no kernels for " + std::string(to_string(isa)));
  return portable::quant_table;
}

const QuantKernels& quant_kernels() { return quant_kernels(cpu_features().isa); }

}  // namespace rlx::cpu
