#include "train/model_gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "train/code_blocks.h"
#include "train/config.h"
#include "train/model.h"
#include "train/tokenizer_gguf.h"

namespace rlx {
namespace {

ModelConfig read_config(const GgufFile& file) {
  auto& architecture = file.get<std::string>("general.architecture");
  if (architecture != "bitnet")
    throw Unsupported(
        fmt::format("[gguf] {}: got architecture \"{}\", expected \"bitnet\"", file.path(), architecture));
  ModelConfig c;
  c.context_length = file.get_int("bitnet.context_length");
  c.embedding_length = file.get_int("bitnet.embedding_length");
  c.block_count = file.get_int("bitnet.block_count");
  c.feed_forward_length = file.get_int("bitnet.feed_forward_length");
  c.head_count = file.get_int("bitnet.attention.head_count");
  c.head_count_kv =
      file.find("bitnet.attention.head_count_kv") ? file.get_int("bitnet.attention.head_count_kv") : c.head_count;
  c.rms_norm_epsilon = file.get_number("bitnet.attention.layer_norm_rms_epsilon");
  if (file.find("bitnet.rope.freq_base")) c.rope_freq_base = file.get_number("bitnet.rope.freq_base");
  auto& embedding = file.tensor("token_embd.weight");
  if (embedding.shape.size() != 2)
    throw UserError(
        fmt::format("[gguf] {}: token_embd.weight is {}, expected two axes", file.path(), to_string(embedding.shape)));
  c.vocab_size = embedding.shape[0];
  if (file.find("rlx.precision")) c.precision = file.get<std::string>("rlx.precision");
  check_model_config(c, file.path());
  if (file.find("bitnet.rope.dimension_count") && file.get_int("bitnet.rope.dimension_count") != c.head_length())
    throw Unsupported(fmt::format("[gguf] {}: got bitnet.rope.dimension_count {}, expected the head length {}",
                                  file.path(), file.get_int("bitnet.rope.dimension_count"), c.head_length()));
  return c;
}

// Codes and the one value that all but the zeros have, or nothing.
bool to_ternary(std::span<const float> values, std::span<std::int8_t> codes, float& scale) {
  scale = 0;
  for (float v : values) scale = std::max(scale, std::abs(v));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != 0 && std::abs(values[i]) != scale) return false;
    codes[i] = std::int8_t((values[i] > 0) - (values[i] < 0));
  }
  return true;
}

struct Linear {
  Array values, codes;  // no codes where it is not ternary
  float scale = 1;
};

Linear read_linear(const GgufTensor& tensor, float factor) {
  Linear out{.values = tensor.to_array().cast(DType::F32), .codes = Array(DType::I8, tensor.shape)};
  float scale = 0;
  if (to_ternary(out.values.values<float>(), out.codes.values<std::int8_t>(), scale)) {
    out.scale = (scale == 0 ? 1 : scale) * factor;
  } else {
    out.codes = Array();
  }
  for (float& v : out.values.values<float>()) v *= factor;
  return out;
}

// The codes as they are in the blocks, beside the f32 scale of all where the type has one.
void read_codes(const GgufFile& file, const GgufTensor& tensor, const ModelConfig& c, Tensors& params) {
  if (tensor.type != gguf_type(c.precision))
    throw UserError(fmt::format("[gguf] {}: rlx.precision is \"{}\", but tensor \"{}\" is {}", file.path(), c.precision,
                                tensor.name, gguf_type_name(tensor.type)));
  bool is_nvfp4 = c.precision == "nvfp4";
  BlockCodes blocks = from_fp4_blocks(tensor.bytes, tensor.shape, is_nvfp4 ? Fp4Layout{16, 4} : Fp4Layout{32, 1});
  params.emplace(tensor.name, blocks.codes);
  params.emplace(block_scale_name(tensor.name), blocks.scales);
  if (is_nvfp4)
    params.emplace(tensor_scale_name(tensor.name),
                   file.tensor(tensor_scale_name(tensor.name)).to_array().reshaped({1}));
}

}  // namespace

LanguageModel load_model_gguf(const std::string& path, Device device) {
  GgufFile file = GgufFile::open(path);
  ModelConfig c = read_config(file);
  if (file.find_tensor("output.weight"))
    throw Unsupported(fmt::format("[gguf] {}: has an output.weight, expected a head tied to token_embd.weight", path));
  Tensors params;
  std::map<std::string, Linear> linears;
  std::set<std::string> known;
  for (auto& p : model_params(c)) {
    auto& tensor = file.tensor(p.name);
    known.insert(p.name);
    if (tensor.shape != p.shape)
      throw UserError(fmt::format("[gguf] {}: tensor \"{}\" is {}, expected {}", path, p.name, to_string(tensor.shape),
                                  to_string(p.shape)));
    if (!p.is_linear) {
      params.emplace(p.name, tensor.to_array().cast(DType::F32));
      continue;
    }
    float factor = 1;
    if (auto scale = file.find_tensor(tensor_scale_name(p.name))) {
      known.insert(scale->name);
      if (scale->size() != 1)
        throw UserError(fmt::format("[gguf] {}: tensor \"{}\" is {}, expected one value", path, scale->name,
                                    to_string(scale->shape)));
      factor = float(scale->to_array().at(0));
    }
    if (weight_form(c) == WeightForm::Scaled)
      read_codes(file, tensor, c, params);
    else
      linears.emplace(p.name, read_linear(tensor, factor));
  }
  for (auto& tensor : file.tensors())
    if (!known.contains(tensor.name))
      throw Unsupported(fmt::format("[gguf] {}: the bitnet architecture has no tensor \"{}\"", path, tensor.name));
  bool ternary = !linears.empty() &&
                 std::all_of(linears.begin(), linears.end(), [](auto& l) { return l.second.codes.size() > 0; });
  if (!file.find("rlx.precision")) c.precision = ternary ? "bitnet" : "f32";
  if (c.precision == "bitnet" && !ternary)
    throw UserError(
        fmt::format("[gguf] {}: rlx.precision is \"bitnet\", but not all linear weights are ternary", path));
  for (auto& [name, linear] : linears) {
    params.emplace(name, c.precision == "bitnet" ? linear.codes : linear.values);
    if (c.precision == "bitnet") params.emplace(tensor_scale_name(name), Array(std::vector<float>{linear.scale}, {1}));
  }
  return {c, std::make_shared<const Tokenizer>(load_gguf_tokenizer(file)), std::move(params), std::move(device)};
}

}  // namespace rlx
