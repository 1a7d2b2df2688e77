#include "quant/quantize_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "base/text.h"
#include "quant/scaled.h"
#include "quant/ternary.h"

namespace rlx {
namespace {

using Kind = TensorType::Kind;

constexpr std::int64_t kGroup = 32;  // elements of int4 under one scale

std::vector<TensorType> make_types() {
  std::vector<TensorType> out;
  for (DType d : {DType::F32, DType::F16, DType::BF16}) out.push_back({std::string(to_string(d)), Kind::Plain, d});
  auto scaled = [&](const char* name, Format f, ScaleLayout layout) {
    out.push_back({name, Kind::Scaled, DType::Any, f, layout});
  };
  scaled("mxfp8", Format::F8E4M3, ScaleLayout::Mx);
  scaled("mxfp8_e5m2", Format::F8E5M2, ScaleLayout::Mx);
  scaled("mxfp6", Format::F6E2M3, ScaleLayout::Mx);
  scaled("mxfp6_e3m2", Format::F6E3M2, ScaleLayout::Mx);
  scaled("mxfp4", Format::F4E2M1, ScaleLayout::Mx);
  scaled("nvfp4", Format::F4E2M1, ScaleLayout::Nvfp4);
  out.push_back({"int8", Kind::RowScale, DType::I8, Format::Int8});
  out.push_back({"int4", Kind::Grouped, DType::U8, Format::Int4});
  out.push_back({"ternary", Kind::Ternary, DType::U8, Format::Ternary});
  for (int i = 0; i < kFormatCount; ++i)
    if (info(Format(i)).is_float() && Format(i) != Format::E8M0)
      scaled(to_string(Format(i)).data(), Format(i), ScaleLayout::PerTensor);
  return out;
}
const std::vector<TensorType>& types() {
  static const std::vector<TensorType> all = make_types();
  return all;
}

std::int64_t last(const Extents& shape) { return shape.empty() ? 1 : shape.back(); }
Extents with_last(Extents shape, std::int64_t n) {
  if (shape.empty()) return {n};
  shape.back() = n;
  return shape;
}
std::int64_t rows_of(const Extents& shape) { return last(shape) ? count(shape) / last(shape) : 0; }

// What safetensors calls the codes of a format; "" where it has no dtype for them.
const char* code_name(Format format) {
  switch (format) {
    case Format::F8E4M3: return "F8_E4M3";
    case Format::F8E5M2: return "F8_E5M2";
    case Format::F8E4M3FNUZ: return "F8_E4M3FNUZ";
    case Format::F8E5M2FNUZ: return "F8_E5M2FNUZ";
    case Format::E8M0: return "F8_E8M0";
    default: return "";
  }
}

[[noreturn]] void fail(std::string_view tensor, const std::string& what) {
  throw UserError(fmt::format("[quantize] tensor {}: {}", in_quotes(tensor), what));
}

void check_finite(std::span<const float> x, const TensorType& type, std::string_view tensor) {
  auto bad = std::find_if(x.begin(), x.end(), [](float v) { return !std::isfinite(v); });
  if (bad != x.end())
    fail(tensor, fmt::format("element {} is {}, which {} cannot hold", bad - x.begin(), *bad, type.name));
}

QuantizedArray plain(const Array& values, const TensorType& type, std::string_view tensor) {
  QuantizedArray out{type, values.shape(), values.cast(type.dtype), {}, {}};
  for (std::int64_t i = 0; i < values.size(); ++i)
    if (std::isfinite(values.at(i)) && !std::isfinite(out.codes.at(i)))
      fail(tensor, fmt::format("element {} is {}, which {} cannot hold", i, values.at(i), type.name));
  return out;
}

QuantizedArray scaled(const Array& values, const TensorType& type, MxRule rule) {
  auto t = scaled_quantize(values, type.format, type.layout, rule);
  QuantizedArray out{type, values.shape(), pack_codes(t.codes, info(type.format).bits), t.scale, t.tensor_scale};
  out.clipped = t.clipped;
  return out;
}

// Integers of Format with a scale for each `group` elements of a row; `store` gives the scale as the file holds it.
struct IntegerBlocks {
  Format format;
  std::int64_t group;
  float (*store)(float);
};
QuantizedArray integers(const Array& values, const TensorType& type, const IntegerBlocks& blocks, Array& scales) {
  Array codes(DType::U8, values.shape());
  QuantizedArray out{type, values.shape(), {}, {}, {}};
  auto x = values.values<float>();
  auto q = codes.values<std::uint8_t>();
  float most = float(info(blocks.format).max);
  std::int64_t columns = last(values.shape()), in_row = (columns + blocks.group - 1) / blocks.group;
  for (std::int64_t i = 0; i < scales.size(); ++i) {
    std::int64_t begin = i / in_row * columns + i % in_row * blocks.group;
    auto n = std::size_t(std::min(blocks.group, columns - i % in_row * blocks.group));
    float amax = max_abs(x.subspan(std::size_t(begin), n)), scale = amax == 0 ? 1 : blocks.store(amax / most);
    scales.values<float>()[std::size_t(i)] = scale;
    for (auto j = std::size_t(begin); j < std::size_t(begin) + n; ++j) {
      float ratio = x[j] / scale, limited = std::clamp(ratio, -most, most);
      q[j] = encode(blocks.format, limited);
      out.clipped += std::fabs(ratio) >= most + 0.5f;
    }
  }
  out.codes = codes;
  return out;
}

QuantizedArray row_scaled(const Array& values, const TensorType& type) {
  Array scales(DType::F32, with_last(values.shape(), 1));
  auto store = [](float v) { return std::max(v, 0x1p-126f); };
  auto out = integers(values, type, {Format::Int8, std::max<std::int64_t>(last(values.shape()), 1), store}, scales);
  out.codes = Array::share(std::make_shared<Array>(out.codes), out.codes.bytes(), DType::I8, values.shape());
  out.scale = scales;
  return out;
}
QuantizedArray grouped(const Array& values, const TensorType& type, std::string_view tensor) {
  Array scales(DType::F32, with_last(values.shape(), (last(values.shape()) + kGroup - 1) / kGroup));
  auto store = [](float v) { return std::max(float(f16(v)), 0x1p-24f); };  // the least above 0, where f16 would have 0
  auto out = integers(values, type, {Format::Int4, kGroup, store}, scales);
  for (float s : scales.values<float>())
    if (!std::isfinite(s)) fail(tensor, "a group's scale is too large for f16, as int4 has it");
  out.codes = pack_codes(out.codes, 4);
  out.scale = scales.cast(DType::F16);
  return out;
}

QuantizedArray ternary(const Array& values, const TensorType& type) {
  auto t = ternarize_per_tensor(values);
  Array codes(DType::U8, values.shape());
  for (std::int64_t i = 0; i < values.size(); ++i)
    codes.values<std::uint8_t>()[std::size_t(i)] = std::uint8_t(t.codes.values<std::int8_t>()[std::size_t(i)] & 3);
  return {type, values.shape(), pack_codes(codes, 2), t.scales.reshaped({1}), {}};
}

}  // namespace

std::int64_t QuantizedArray::bytes() const {
  return std::int64_t(codes.byte_size() + scale.byte_size() + tensor_scale.byte_size());
}

std::int64_t block_size(const TensorType& type, std::int64_t row_length) {
  switch (type.kind) {
    case Kind::Plain: return 1;
    case Kind::Scaled: return block_size(type.layout);
    case Kind::RowScale: return row_length;
    case Kind::Grouped: return kGroup;
    case Kind::Ternary: return 0;
  }
  throw InternalError("unknown kind of tensor type");
}

std::vector<TensorPart> parts_of(const TensorType& type, const Extents& shape) {
  auto codes = &QuantizedArray::codes;
  auto scale = &QuantizedArray::scale;
  if (type.kind == Kind::Plain) return {{"", type.dtype, "", shape, codes}};
  std::int64_t columns = last(shape);
  std::vector<TensorPart> out;
  if (type.kind == Kind::RowScale) {
    out.push_back({"", DType::I8, "", shape, codes});
  } else {
    int bits = info(type.format).bits;
    out.push_back(
        {"", DType::U8, code_name(type.format), bits == 8 ? shape : with_last(shape, (columns * bits + 7) / 8), codes});
  }
  auto blocks = [&](std::int64_t block) { return with_last(shape, (columns + block - 1) / block); };
  if (type.kind == Kind::RowScale) out.push_back({"_scale", DType::F32, "", with_last(shape, 1), scale});
  if (type.kind == Kind::Grouped) out.push_back({"_scale", DType::F16, "", blocks(kGroup), scale});
  if (type.kind == Kind::Ternary) out.push_back({"_scale", DType::F32, "", {1}, scale});
  if (type.kind != Kind::Scaled) return out;
  switch (type.layout) {
    case ScaleLayout::PerTensor: out.push_back({"_scale", DType::F32, "", {1}, scale}); break;
    case ScaleLayout::Mx:
      out.push_back({"_scale", DType::U8, code_name(Format::E8M0), blocks(block_size(type.layout)), scale});
      break;
    case ScaleLayout::Nvfp4:
      out.push_back({"_scale", DType::U8, code_name(Format::F8E4M3), blocks(block_size(type.layout)), scale});
      out.push_back({"_scale_2", DType::F32, "", {1}, &QuantizedArray::tensor_scale});
      break;
  }
  return out;
}

TensorType tensor_type(std::string_view name) {
  std::vector<std::string_view> names;
  for (auto& t : types()) {
    if (t.name == name) return t;
    names.push_back(t.name);
  }
  throw UserError(fmt::format("[quantize] safetensors files have no type {}, expected one of {}", in_quotes(name),
                              fmt::join(names, ", ")));
}

QuantizedArray quantize_array(const Array& source, const TensorType& type, MxRule rule, std::string_view tensor) {
  Array values = source.cast(DType::F32);
  if (type.kind != Kind::Plain && values.size() == 0)
    fail(tensor, fmt::format("it has no elements, so {} has no scale for it", type.name));
  if (type.kind != Kind::Plain) check_finite(values.values<float>(), type, tensor);
  switch (type.kind) {
    case Kind::Plain: return plain(source, type, tensor);
    case Kind::Scaled: return scaled(values, type, rule);
    case Kind::RowScale: return row_scaled(values, type);
    case Kind::Grouped: return grouped(values, type, tensor);
    case Kind::Ternary: return ternary(values, type);
  }
  throw InternalError("unknown kind of tensor type");
}

Array dequantize_array(const QuantizedArray& q) {
  if (q.type.kind == Kind::Plain) return q.codes.cast(DType::F32);
  bool is_int8 = q.type.kind == Kind::RowScale;
  Array codes = is_int8 ? q.codes : unpack_codes(q.codes, q.shape, info(q.type.format).bits);
  if (q.type.kind == Kind::Scaled)
    return scaled_dequantize({q.type.format, q.type.layout, codes, q.scale, q.tensor_scale});
  Array out(DType::F32, q.shape), scales = q.scale.cast(DType::F32);
  auto table = decode_table(q.type.format);
  auto bytes = reinterpret_cast<const std::uint8_t*>(codes.bytes());
  auto values = out.values<float>();
  std::int64_t columns = last(q.shape),
               in_row = rows_of(q.shape) ? std::max<std::int64_t>(scales.size() / rows_of(q.shape), 1) : 1;
  for (std::int64_t i = 0; i < out.size(); ++i) {
    std::int64_t at = q.type.kind == Kind::Ternary ? 0 : i / columns * in_row + (is_int8 ? 0 : i % columns / kGroup);
    values[std::size_t(i)] = table[bytes[i]] * scales.values<float>()[std::size_t(at)];
  }
  return out;
}

Array pack_codes(const Array& codes, int bits) {
  if (bits == 8) return codes;
  std::int64_t columns = last(codes.shape()), bytes = (columns * bits + 7) / 8;
  Array out(DType::U8, with_last(codes.shape(), bytes));
  auto from = codes.values<std::uint8_t>();
  auto to = out.values<std::uint8_t>();
  parallel_for(rows_of(codes.shape()), [&](std::int64_t r) {
    for (std::int64_t i = 0; i < columns; ++i) {
      std::int64_t bit = i * bits;
      unsigned v = unsigned(from[std::size_t(r * columns + i)]) << (bit % 8);
      auto at = std::size_t(r * bytes + bit / 8);
      to[at] |= std::uint8_t(v);
      if (v >> 8) to[at + 1] |= std::uint8_t(v >> 8);
    }
  });
  return out;
}

Array unpack_codes(const Array& packed, const Extents& shape, int bits) {
  if (bits == 8) return packed;
  std::int64_t columns = last(shape), bytes = (columns * bits + 7) / 8;
  Array out(DType::U8, shape);
  auto from = packed.values<std::uint8_t>();
  auto to = out.values<std::uint8_t>();
  parallel_for(rows_of(shape), [&](std::int64_t r) {
    for (std::int64_t i = 0; i < columns; ++i) {
      std::int64_t bit = i * bits;
      auto at = std::size_t(r * bytes + bit / 8);
      unsigned v = from[at];
      if (bit % 8 + bits > 8) v |= unsigned(from[at + 1]) << 8;
      to[std::size_t(r * columns + i)] = std::uint8_t(v >> (bit % 8) & ((1u << bits) - 1));
    }
  });
  return out;
}

}  // namespace rlx
