#include "train/model_safetensors.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "files/tensor_source.h"
#include "quant/quantize_tensor.h"
#include "train/config.h"
#include "train/model.h"
#include "train/tokenizer.h"

namespace rlx {
namespace {

constexpr const char* kConfig = "rlx.config";
constexpr const char* kTokenizer = "rlx.tokenizer";
constexpr const char* kVersion = "rlx.version";
constexpr std::string_view kEmbedding = "token_embd.weight";

// Where a model keeps the parts of a scaled weight.
std::string param_name(const std::string& weight, const TensorType& type, const TensorPart& part) {
  if (part.array == &QuantizedArray::codes) return weight;
  bool is_block_scale = part.array == &QuantizedArray::scale && type.layout != ScaleLayout::PerTensor;
  return is_block_scale ? block_scale_name(weight) : tensor_scale_name(weight);
}

struct ModelFile {
  Tensors tensors;
  std::map<std::string, std::string> formats;
  nlohmann::ordered_json quantized = nlohmann::ordered_json::object();
  std::vector<ExportedTensor> rows;

  void add(const std::string& name, const Array& value, std::string_view type, std::int64_t elements,
           std::int64_t params) {
    tensors.emplace(name, value);
    rows.push_back({name, std::string(type), elements, std::int64_t(value.byte_size()), params});
  }
  void add_scaled(const LanguageModel& model, const ParamInfo& p, const TensorType& type) {
    for (auto& part : parts_of(type, p.shape)) {
      Array value = model.params().at(param_name(p.name, type, part));
      bool is_codes = part.array == &QuantizedArray::codes;
      if (is_codes) value = pack_codes(value, info(type.format).bits);
      add(p.name + part.suffix, value,
          is_codes     ? type.name
          : *part.code ? part.code
                       : to_string(part.dtype),
          is_codes ? count(p.shape) : value.size(), is_codes ? count(p.shape) : 0);
      if (*part.code) formats.emplace(p.name + part.suffix, part.code);
    }
    quantized[p.name] = {{"type", type.name}, {"shape", p.shape}};
  }
  void add_codebook(const LanguageModel& model, const ParamInfo& p) {
    const Array& indices = model.params().at(indices_name(p.name));
    add(indices_name(p.name), indices, "u8", indices.size(), count(p.shape));
    const Array& entries = model.params().at(codebook_name(p.name));
    add(codebook_name(p.name), entries, "f32", entries.size(), 0);
  }
  void add_float(const LanguageModel& model, const ParamInfo& p, DType dtype) {
    const Array& used = model.params().at(p.name);
    Array value = used.cast(dtype);
    add(p.name, value, to_string(dtype), value.size(), value.size());
    for (std::int64_t i = 0; i < value.size(); ++i)
      rows.back().max_error = std::max(rows.back().max_error, std::abs(value.at(i) - used.at(i)));
  }
};

}  // namespace

std::vector<ExportedTensor> save_model_safetensors(const LanguageModel& model, const std::string& path,
                                                   const std::string& type, DType embedding) {
  auto& c = model.config();
  ModelFile file;
  for (auto& p : model_params(c)) {
    if (!p.is_linear)
      file.add_float(model, p, p.name == kEmbedding ? embedding : DType::F32);
    else if (weight_form(c) == WeightForm::Codebook)
      file.add_codebook(model, p);
    else
      file.add_scaled(model, p, tensor_type(type));
  }
  std::map<std::string, std::string> metadata = {
      {kVersion, "1"}, {kConfig, model_config_json(c)}, {kTokenizer, model.tokenizer().json()}};
  if (!file.quantized.empty()) metadata.emplace(kQuantizedKey, file.quantized.dump());
  save_safetensors(path, file.tensors, metadata, file.formats);
  return file.rows;
}

LanguageModel load_model_safetensors(const std::string& path, Device device) {
  Safetensors file = load_safetensors(path);
  auto text = [&](const char* key) -> const std::string& {
    auto found = file.metadata.find(key);
    if (found == file.metadata.end())
      throw UserError(fmt::format("[model] {}: has no metadata \"{}\": it is no model that RLX exported", path, key));
    return found->second;
  };
  if (text(kVersion) != "1")
    throw Unsupported(fmt::format("[model] {}: got {} {}, expected 1", path, kVersion, text(kVersion)));
  ModelConfig c = parse_config(text(kConfig), path).model;
  auto tokenizer = std::make_shared<const Tokenizer>(Tokenizer::parse(text(kTokenizer), path));

  auto take = [&](const std::string& name, const Type& expected) {
    auto found = file.tensors.find(name);
    if (found == file.tensors.end()) throw UserError(fmt::format("[model] {}: tensor \"{}\" is missing", path, name));
    Array value = found->second;
    if (name == kEmbedding && is_float(value.dtype())) value = value.cast(DType::F32);
    if (value.type() != expected)
      throw UserError(fmt::format("[model] {}: tensor \"{}\" is {}, expected {}", path, name,
                                  to_string(found->second.type()), to_string(expected)));
    file.tensors.erase(found);
    return value;
  };
  Tensors params;
  bool is_scaled = weight_form(c) == WeightForm::Scaled;
  for (auto& p : trained_params(c)) {
    if (!p.is_linear || !is_scaled) {
      params.emplace(p.name, take(p.name, {p.dtype, to_shape(p.shape)}));
      continue;
    }
    TensorType type = tensor_type(precision(c.precision).file_types[0]);
    for (auto& part : parts_of(type, p.shape)) {
      Array value = take(p.name + part.suffix, {part.dtype, to_shape(part.shape)});
      if (part.array == &QuantizedArray::codes) value = unpack_codes(value, p.shape, info(type.format).bits);
      params.emplace(param_name(p.name, type, part), value);
    }
  }
  if (!file.tensors.empty())
    throw UserError(fmt::format("[model] {}: unknown tensor \"{}\"", path, file.tensors.begin()->first));
  return {c, tokenizer, std::move(params), std::move(device)};
}

}  // namespace rlx
