#include "quant/scaled.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "rlx/attrs.h"

namespace rlx {
namespace {

void check(const Array& x, Format format, ScaleLayout layout) {
  auto fail = [](const std::string& why) { throw UserError("[scaled_quantize] " + why); };
  if (x.dtype() != DType::F32 && x.dtype() != DType::F16 && x.dtype() != DType::BF16)
    fail(fmt::format("got {}, expected f32, f16 or bf16", to_string(x.type())));
  if (!info(format).is_float() || format == Format::E8M0) fail(fmt::format("{} is no float format", to_string(format)));
  if (layout == ScaleLayout::Nvfp4 && format != Format::F4E2M1)
    fail(fmt::format("nvfp4 holds f4e2m1 codes, not {}", to_string(format)));
  if (layout != ScaleLayout::PerTensor && x.shape().empty()) fail("blocks lie along the last axis, got a scalar");
}

Array scalar(float v) { return Array(std::vector<float>{v}, {1}); }

// The least magnitude that rounds past the format's largest value.
struct Overflow {
  explicit Overflow(Format format) {
    const FormatInfo& f = info(format);
    limit_ = f.max + (f.max - decode(format, std::uint8_t(f.max_code - 1))) / 2;
    with_tie_ = f.max_code % 2 != 0;
  }
  bool operator()(float q) const { return std::fabs(q) > limit_ || (with_tie_ && std::fabs(q) == limit_); }

 private:
  double limit_;
  bool with_tie_;
};

// Codes of one block, and what they lose.
void quantize_block(ScaledTensor& out, std::span<const float> x, float scale, std::uint8_t* codes) {
  Overflow overflows(out.format);
  bool any = false, kept = false;
  for (std::size_t i = 0; i < x.size(); ++i) {
    float q = x[i] / scale;
    codes[i] = encode(out.format, q);
    out.clipped += overflows(q);
    any = any || x[i] != 0;
    kept = kept || decode(out.format, codes[i]) != 0;
  }
  out.flushed += any && !kept;
}

}  // namespace

float max_abs(std::span<const float> x) {
  float most = 0;
  for (float v : x) {
    if (v != v) return v;
    most = std::max(most, std::fabs(v));
  }
  return most;
}

float tensor_scale(float amax, float divisor) {
  float scale = amax / divisor;
  if (scale == 0) return 1;
  return std::isnan(scale) ? scale : std::clamp(scale, 0x1p-126f, 0x1.fffffep127f);
}
std::uint8_t mx_scale(float amax, Format format, MxRule rule) {
  if (rule == MxRule::Ceil) return encode(Format::E8M0, double(amax) / info(format).max, false, Rounding::AwayFromZero);
  std::uint8_t code = encode(Format::E8M0, amax, false, Rounding::TowardsZero);
  return code == 255 ? code : std::uint8_t(std::max(code - info(format).max_exponent(), 0));
}
std::uint8_t nvfp4_scale(float amax, float tensor_scale) {
  float ratio = (amax / 6) / tensor_scale;
  return encode(Format::F8E4M3, std::isnan(ratio) ? 448 : std::clamp(ratio, 0x1p-9f, 448.f));
}

ScaledTensor scaled_quantize(const Array& source, Format format, ScaleLayout layout, MxRule rule) {
  check(source, format, layout);
  Array wide = source.cast(DType::F32);
  std::span<const float> x = wide.values<float>();
  ScaledTensor out{format, layout, Array(DType::U8, source.shape()), {}, {}};
  auto codes = out.codes.values<std::uint8_t>();
  if (layout == ScaleLayout::PerTensor) {
    float scale = tensor_scale(max_abs(x), float(info(format).max));
    out.scale = scalar(scale);
    quantize_block(out, x, scale, codes.data());
    return out;
  }
  std::int64_t block = block_size(layout), columns = source.shape().back(), blocks = (columns + block - 1) / block;
  Extents scale_shape = source.shape();
  scale_shape.back() = blocks;
  out.scale = Array(DType::U8, scale_shape);
  float factor = 1;
  if (layout == ScaleLayout::Nvfp4) out.tensor_scale = scalar(factor = tensor_scale(max_abs(x), kNvfp4Divisor));
  auto scales = out.scale.values<std::uint8_t>();
  for (std::size_t i = 0; i < scales.size(); ++i) {
    std::int64_t row = std::int64_t(i) / blocks, first = std::int64_t(i) % blocks * block;
    auto part = x.subspan(std::size_t(row * columns + first), std::size_t(std::min(block, columns - first)));
    bool mx = layout == ScaleLayout::Mx;
    scales[i] = mx ? mx_scale(max_abs(part), format, rule) : nvfp4_scale(max_abs(part), factor);
    float scale = decode_table(mx ? Format::E8M0 : Format::F8E4M3)[scales[i]] * factor;
    quantize_block(out, part, scale, codes.data() + row * columns + first);
  }
  return out;
}

Array scaled_dequantize(const ScaledTensor& t) {
  Array out(DType::F32, t.codes.shape());
  auto codes = t.codes.values<std::uint8_t>();
  auto values = out.values<float>();
  auto table = decode_table(t.format);
  float factor = t.layout == ScaleLayout::Nvfp4 ? t.tensor_scale.values<float>()[0] : 1;
  std::int64_t block = block_size(t.layout), columns = codes.empty() || !block ? 1 : t.codes.shape().back();
  std::int64_t blocks = block ? (columns + block - 1) / block : 0;
  auto scale_table = decode_table(t.layout == ScaleLayout::Mx ? Format::E8M0 : Format::F8E4M3);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::int64_t row = std::int64_t(i) / columns, column = std::int64_t(i) % columns;
    float scale = block ? scale_table[t.scale.values<std::uint8_t>()[std::size_t(row * blocks + column / block)]]
                        : t.scale.values<float>()[0];
    values[i] = (table[codes[i]] * scale) * factor;
  }
  return out;
}

}  // namespace rlx
