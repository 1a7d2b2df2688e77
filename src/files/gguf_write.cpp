// Writing GGUF version 3.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/file.h"
#include "base/text.h"
#include "files/gguf_kinds.h"
#include "quant/block_format.h"
#include "rlx/files.h"

namespace rlx {
namespace {

template <class T>
void write_element(FileWriter& out, const T& v) {
  if constexpr (std::is_same_v<T, std::string>) {
    out.write_number(std::uint64_t(v.size()));
    out.write(v);
  } else if constexpr (std::is_same_v<T, bool>) {
    out.write_number(std::uint8_t(v));
  } else {
    out.write_number(v);
  }
}
template <class T>
void write_value(FileWriter& out, const T& v) {
  out.write_number(gguf_kind_of<T>());
  write_element(out, v);
}
template <class T>
void write_value(FileWriter& out, const std::vector<T>& v) {
  out.write_number(kGgufArray);
  out.write_number(gguf_kind_of<T>());
  out.write_number(std::uint64_t(v.size()));
  for (std::size_t i = 0; i < v.size(); ++i) write_element(out, static_cast<const T&>(v[i]));
}

const BlockFormat& format_of(std::uint32_t type, const std::string& name) {
  if (auto f = find_block_format(type)) return *f;
  throw UserError(fmt::format("[gguf] tensor {}: the type {} is not known", in_quotes(name), type));
}
// Other readers take a NaN scale for 0, so a file gets none.
void check_finite(std::span<const float> values, const BlockFormat& format, const std::string& name) {
  auto bad = std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
  if (bad == values.end()) return;
  throw UserError(fmt::format("[gguf] tensor {}: element {} is {}, which {} cannot hold", in_quotes(name),
                              bad - values.begin(), *bad, format.name));
}

std::int64_t row_length(const Extents& shape) { return shape.empty() ? 1 : shape.back(); }
std::uint64_t padded(std::uint64_t size, std::uint64_t alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

}  // namespace

void GgufWriter::set(std::string key, GgufValue value) {
  if (key.empty()) throw UserError("[gguf] a key has an empty name");
  if (std::any_of(values_.begin(), values_.end(), [&](auto& v) { return v.first == key; }))
    throw UserError(fmt::format("[gguf] the key {} is set twice", in_quotes(key)));
  if (key == "general.alignment") {
    auto a = std::get_if<std::uint32_t>(&value);
    if (!a || *a == 0 || *a % 8)
      throw UserError("[gguf] general.alignment must be a u32 that is a multiple of 8 and not 0");
  }
  values_.emplace_back(std::move(key), std::move(value));
}

void GgufWriter::check(const std::string& name, const Extents& shape, std::uint32_t type) const {
  auto fail = [&](const std::string& what) {
    throw UserError(fmt::format("[gguf] tensor {}: {}", in_quotes(name), what));
  };
  if (name.empty()) fail("the name is empty");
  if (name.size() > kGgufMaxName)
    fail(fmt::format("the name has {} bytes, expected at most {}", name.size(), kGgufMaxName));
  if (std::any_of(tensors_.begin(), tensors_.end(), [&](auto& t) { return t.name == name; })) fail("it is added twice");
  if (shape.size() > kGgufMaxRank) fail(fmt::format("the shape {} has more than 4 axes", to_string(shape)));
  if (count(shape) == 0)
    fail(fmt::format("the shape {} has no elements, which the format cannot hold", to_string(shape)));
  encoded_size(format_of(type, name), count(shape) / row_length(shape), row_length(shape), name);
}

void GgufWriter::add(std::string name, const Array& values, std::uint32_t type) {
  check(name, values.shape(), type);
  auto& format = format_of(type, name);
  std::vector<std::byte> bytes;
  if (format.dtype != DType::Any &&
      (format.dtype == values.dtype() || !is_float(format.dtype) || format.dtype == DType::F64)) {
    if (format.dtype != values.dtype())
      throw UserError(fmt::format("[gguf] tensor {}: got {}, expected {} for the type {}", in_quotes(name),
                                  to_string(values.dtype()), to_string(format.dtype), format.name));
    bytes.assign(values.bytes(), values.bytes() + values.byte_size());
  } else {
    auto wide = values.cast(DType::F32);
    float scale = tensor_scale_of(format, wide.values<float>());
    if (format.has_tensor_scale()) check_finite(wide.values<float>(), format, name);
    bytes = encode(format, wide.values<float>(), row_length(values.shape()), name, scale);
    if (format.has_tensor_scale())
      add(tensor_scale_name(name), Array(std::vector<float>{scale}, {1}), block_format("F32").id);
  }
  tensors_.push_back({std::move(name), type, values.shape(), std::move(bytes)});
}

void GgufWriter::add_ternary(std::string name, const Array& codes, std::span<const float> scales, std::uint32_t type) {
  check(name, codes.shape(), type);
  auto bytes =
      encode_ternary(format_of(type, name), codes.values<std::int8_t>(), scales, row_length(codes.shape()), name);
  tensors_.push_back({std::move(name), type, codes.shape(), std::move(bytes)});
}

void GgufWriter::add_encoded(std::string name, Extents shape, std::uint32_t type, std::vector<std::byte> bytes) {
  check(name, shape, type);
  auto wanted = encoded_size(format_of(type, name), count(shape) / row_length(shape), row_length(shape), name);
  if (std::int64_t(bytes.size()) != wanted)
    throw UserError(fmt::format("[gguf] tensor {}: got {} bytes, expected {} for {} of {}", in_quotes(name),
                                bytes.size(), wanted, to_string(shape), gguf_type_name(type)));
  tensors_.push_back({std::move(name), type, std::move(shape), std::move(bytes)});
}

void GgufWriter::write(const std::string& path) const {
  std::uint64_t alignment = 32;
  for (auto& [key, value] : values_)
    if (key == "general.alignment") alignment = std::get<std::uint32_t>(value);
  write_file_atomic(path, [&](FileWriter& out) {
    out.write("GGUF");
    out.write_number(std::uint32_t(3));
    out.write_number(std::uint64_t(tensors_.size()));
    out.write_number(std::uint64_t(values_.size()));
    for (auto& [key, value] : values_) {
      write_element(out, key);
      std::visit([&](auto& v) { write_value(out, v); }, value);
    }
    std::uint64_t offset = 0;
    for (auto& t : tensors_) {
      write_element(out, t.name);
      out.write_number(std::uint32_t(t.shape.size()));
      for (auto d = t.shape.rbegin(); d != t.shape.rend(); ++d) out.write_number(std::uint64_t(*d));
      out.write_number(t.type);
      out.write_number(offset);
      offset += padded(t.bytes.size(), alignment);
    }
    out.pad(alignment);
    for (auto& t : tensors_) {
      out.write(t.bytes.data(), t.bytes.size());
      out.pad(alignment);
    }
  });
}

}  // namespace rlx
