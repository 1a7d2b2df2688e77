#include "files/tensor_source.h"

#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"

namespace rlx {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void fail(const std::string& path, std::string_view tensor, const std::string& what) {
  throw UserError(fmt::format("[quantize] '{}': tensor {}: {}", path, in_quotes(tensor), what));
}

std::optional<Format> format_of_code(const std::string& code) {
  for (Format f : {Format::F8E4M3, Format::F8E5M2, Format::F8E4M3FNUZ, Format::F8E5M2FNUZ})
    if (parts_of(tensor_type(to_string(f)), {1})[0].code == code) return f;
  return std::nullopt;
}

Array decode_codes(const Array& codes, Format format) {
  Array out(DType::F32, codes.shape());
  auto table = decode_table(format);
  auto from = codes.values<std::uint8_t>();
  for (std::size_t i = 0; i < from.size(); ++i) out.values<float>()[i] = table[from[i]];
  return out;
}

// A part that metadata promises, taken out of the file's tensors.
Array take_part(const std::string& path, Safetensors& file, const std::string& name, const TensorPart& part) {
  std::string full = name + part.suffix;
  auto it = file.tensors.find(full);
  if (it == file.tensors.end()) fail(path, name, fmt::format("there is no tensor {} beside it", in_quotes(full)));
  auto code = file.formats.find(full);
  std::string got_code = code == file.formats.end() ? "" : code->second;
  if (it->second.dtype() != part.dtype || it->second.shape() != part.shape || got_code != part.code)
    fail(path, full,
         fmt::format("got {} {}, expected {} {}", got_code.empty() ? to_string(it->second.dtype()) : got_code,
                     to_string(it->second.shape()), *part.code ? part.code : to_string(part.dtype),
                     to_string(part.shape)));
  Array out = it->second;
  file.tensors.erase(it);
  return out;
}

QuantizedArray take_quantized(const std::string& path, Safetensors& file, const std::string& name, const Json& about) {
  QuantizedArray out;
  try {
    out.type = tensor_type(about.at("type").get<std::string>());
    out.shape = about.at("shape").get<Extents>();
    for (auto n : out.shape)
      if (n < 1) throw UserError("sizes are 1 or more");
    if (count(out.shape) >> 56) throw UserError("its shape has more elements than any file");
  } catch (const Json::exception& e) {
    fail(path, name, fmt::format("its metadata is not {{\"type\": text, \"shape\": sizes}}: {}", e.what()));
  } catch (const UserError& e) {
    fail(path, name, e.what());
  }
  for (auto& part : parts_of(out.type, out.shape)) out.*part.array = take_part(path, file, name, part);
  return out;
}

// An 8-bit float with `<name>_scale` of one f32 beside it is what others write per tensor.
bool has_foreign_scale(const Safetensors& file, const std::string& name) {
  auto scale = file.tensors.find(name + "_scale");
  return scale != file.tensors.end() && scale->second.dtype() == DType::F32 && scale->second.size() == 1;
}

TensorSource open_safetensors(const std::string& path) {
  Safetensors file = load_safetensors(path);
  TensorSource out;
  out.metadata = file.metadata;
  if (auto it = out.metadata.find(kQuantizedKey); it != out.metadata.end()) {
    Json about = Json::parse(it->second, nullptr, false);
    if (!about.is_object())
      throw UserError(fmt::format("[quantize] '{}': the metadata {} is no JSON object", path, kQuantizedKey));
    for (auto& [name, value] : about.items()) {
      auto coded = take_quantized(path, file, name, value);
      out.tensors.push_back({name, coded.type.name, coded.shape, {}, coded, {}, {}});
    }
    out.metadata.erase(it);
  }
  std::set<std::string> scales;
  for (auto& [name, code] : file.formats)
    if (auto format = format_of_code(code); format && file.tensors.contains(name) && has_foreign_scale(file, name)) {
      QuantizedArray coded{tensor_type(to_string(*format)),
                           file.tensors.at(name).shape(),
                           file.tensors.at(name),
                           file.tensors.at(name + "_scale").reshaped({1}),
                           {}};
      out.tensors.push_back({name, coded.type.name, coded.shape, {}, coded, {}, {}});
      scales.insert({name, name + "_scale"});
    }
  for (auto& [name, array] : file.tensors) {
    if (scales.contains(name)) continue;
    auto code = file.formats.find(name);
    std::string type = code == file.formats.end() ? std::string(to_string(array.dtype())) : code->second;
    out.tensors.push_back({name, type, array.shape(), array, {}, code == file.formats.end() ? "" : type, {}});
  }
  std::sort(out.tensors.begin(), out.tensors.end(), [](auto& a, auto& b) { return a.name < b.name; });
  return out;
}

TensorSource open_gguf(const std::string& path) {
  TensorSource out;
  out.gguf = GgufFile::open(path);
  std::map<std::string, float> scales;  // by their own names
  for (auto& t : out.gguf->tensors()) {
    auto format = find_block_format(t.type);
    if (!format || !format->has_tensor_scale()) continue;
    auto scale = out.gguf->find_tensor(tensor_scale_name(t.name));
    if (!scale) continue;
    if (gguf_type_name(scale->type) != "F32" || scale->size() != 1)
      fail(path, scale->name,
           fmt::format("got {} {}, expected F32 [1]", gguf_type_name(scale->type), to_string(scale->shape)));
    scales.emplace(scale->name, float(scale->to_array().at(0)));
  }
  for (auto& t : out.gguf->tensors()) {
    if (scales.contains(t.name)) continue;
    auto scale = scales.find(tensor_scale_name(t.name));
    SourceTensor tensor{t.name, gguf_type_name(t.type), t.shape, {}, {}, {}, t};
    if (auto format = find_block_format(t.type); format && format->has_tensor_scale() && scale != scales.end())
      tensor.tensor_scale = scale->second;
    out.tensors.push_back(std::move(tensor));
  }
  return out;
}

}  // namespace

const BlockFormat& SourceTensor::format() const {
  auto f = find_block_format(gguf->type);
  if (!f) throw UserError(fmt::format("[quantize] tensor {}: the type {} is not known", in_quotes(name), gguf->type));
  return *f;
}

bool SourceTensor::is_float() const {
  if (coded) return true;
  if (gguf) return format().dtype == DType::Any || rlx::is_float(format().dtype);
  return code.empty() ? rlx::is_float(array.dtype()) : format_of_code(code).has_value();
}

std::int64_t SourceTensor::bytes() const {
  if (coded) return coded->bytes();
  if (gguf) return std::int64_t(gguf->bytes.size() + (format().has_tensor_scale() ? sizeof tensor_scale : 0));
  return std::int64_t(array.byte_size());
}

Array SourceTensor::values() const {
  if (coded) return dequantize_array(*coded);
  if (gguf) {
    Array out = gguf->to_array();
    if (tensor_scale != 1)
      for (float& v : out.values<float>()) v *= tensor_scale;
    return out;
  }
  auto format = format_of_code(code);
  return format ? decode_codes(array, *format) : array;
}

TensorSource open_tensors(const std::string& path) {
  char head[4] = {};
  std::ifstream(path, std::ios::binary).read(head, sizeof head);
  return std::memcmp(head, "GGUF", 4) == 0 || path.ends_with(".gguf") ? open_gguf(path) : open_safetensors(path);
}

std::string quantized_text(const std::vector<std::pair<std::string, const QuantizedArray*>>& tensors) {
  Json out = Json::object();
  for (auto& [name, q] : tensors) out[name] = {{"type", q->type.name}, {"shape", q->shape}};
  return out.dump();
}

Tensors load_values(const std::string& path) {
  Tensors out;
  auto source = open_tensors(path);
  for (auto& t : source.tensors) out.emplace(t.name, t.values());
  return out;
}

}  // namespace rlx
