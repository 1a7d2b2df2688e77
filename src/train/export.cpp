// A trained model as one file: GGUF for llama.cpp, or safetensors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "quant/block_format.h"
#include "rlx/train.h"
#include "train/code_blocks.h"
#include "train/model.h"
#include "train/model_safetensors.h"
#include "train/tokenizer_gguf.h"

namespace rlx {
namespace {

// What is written, once it is known to be possible.
struct Plan {
  std::string type, embedding;
  bool is_gguf = true;
};

const BlockFormat& checked_format(const std::string& name, std::initializer_list<std::string_view> allowed,
                                  const char* what) {
  for (auto a : allowed)
    if (a == name) return block_format(name);
  throw UserError(fmt::format("[export] got {} type \"{}\", expected one of {}", what, name, fmt::join(allowed, ", ")));
}

bool is_ternary(const BlockFormat& f) { return f.encode_ternary != nullptr; }
bool is_gguf_type(std::string_view type) {
  return type != "f8e4m3" && type != "mxfp8" && type != "mxfp6" && type != "codebook";
}

void check_rows(const ParamInfo& p, const BlockFormat& format) {
  if (p.shape[1] % format.elements != 0)
    throw UserError(fmt::format("[export] tensor \"{}\" is {}: its rows of {} are no multiple of {}, which {} needs",
                                p.name, to_string(p.shape), p.shape[1], format.elements, format.name));
}

// Everything that can be refused is, before a byte is written.
Plan plan_export(const ModelConfig& c, const std::string& path, const ExportOptions& options) {
  auto& p = precision(c.precision);
  Plan plan{options.type.empty() ? std::string(p.file_types[0]) : options.type, options.embedding};
  if (std::find(p.file_types.begin(), p.file_types.end(), plan.type) == p.file_types.end())
    throw UserError(fmt::format("[export] got type \"{}\", but the model was trained in {} precision: use {}",
                                plan.type, c.precision, fmt::join(p.file_types, ", ")));
  bool is_scaled = p.form == WeightForm::Scaled, wants_safetensors = path.ends_with(".safetensors");
  plan.is_gguf = is_gguf_type(plan.type) && !(is_scaled && wants_safetensors);
  if (!plan.is_gguf && path.ends_with(".gguf"))
    throw UserError(fmt::format("[export] GGUF has no type {}: name a .safetensors file", plan.type));
  if (plan.is_gguf && wants_safetensors)
    throw UserError(fmt::format("[export] {} is written as GGUF: name a .gguf file", plan.type));
  if (!plan.is_gguf) {
    if (plan.embedding.empty()) plan.embedding = "f32";
    checked_format(plan.embedding, {"f16", "bf16", "f32"}, "embedding");
    return plan;
  }
  if (c.activation != "silu")
    throw Unsupported(fmt::format(
        "[export] the model's activation is {}, but llama.cpp computes bitnet models with silu", c.activation));
  auto& linear = block_format(plan.type);
  if (plan.embedding.empty()) plan.embedding = is_ternary(linear) ? "q8_0" : "f32";
  auto params = model_params(c);
  for (auto& param : params)
    if (param.is_linear) check_rows(param, linear);
  check_rows(params[0], checked_format(plan.embedding, {"f16", "bf16", "q8_0", "f32"}, "embedding"));
  return plan;
}

std::uint32_t file_type(std::string_view type) {
  constexpr std::pair<std::string_view, std::uint32_t> kTypes[] = {
      {"f32", 0}, {"f16", 1}, {"bf16", 32}, {"tq1_0", 36}, {"tq2_0", 37}, {"mxfp4", 38}, {"nvfp4", 39}};
  for (auto& [name, number] : kTypes)
    if (name == type) return number;
  throw InternalError(fmt::format("[export] no GGUF file type for {}", type));
}

void set_keys(GgufWriter& out, const LanguageModel& model, const std::string& type) {
  auto& c = model.config();
  auto u32 = [](std::int64_t v) { return GgufValue(std::uint32_t(v)); };
  out.set("general.architecture", std::string("bitnet"));
  out.set("general.name", std::string("rlx bitnet"));
  out.set("general.file_type", u32(file_type(type)));
  out.set("general.quantization_version", u32(2));
  out.set("bitnet.vocab_size", u32(c.vocab_size));
  out.set("bitnet.context_length", u32(c.context_length));
  out.set("bitnet.embedding_length", u32(c.embedding_length));
  out.set("bitnet.block_count", u32(c.block_count));
  out.set("bitnet.feed_forward_length", u32(c.feed_forward_length));
  out.set("bitnet.attention.head_count", u32(c.head_count));
  out.set("bitnet.attention.head_count_kv", u32(c.head_count_kv));
  out.set("bitnet.attention.layer_norm_rms_epsilon", float(c.rms_norm_epsilon));
  out.set("bitnet.rope.dimension_count", u32(c.head_length()));
  out.set("bitnet.rope.freq_base", float(c.rope_freq_base));
  out.set("rlx.precision", c.precision);
  for (auto& [key, value] : tokenizer_keys(model.tokenizer().vocabulary())) out.set(key, value);
}

// Encodes one tensor and measures what that loses.
ExportedTensor add_tensor(GgufWriter& out, const std::string& name, const Array& values, const BlockFormat& format) {
  Array source = values.cast(DType::F32);
  auto from = source.values<float>();
  std::vector<std::byte> bytes;
  if (values.dtype() == DType::I8 && is_ternary(format)) {
    const float one = 1;
    bytes = encode_ternary(format, values.values<std::int8_t>(), {&one, 1}, values.shape().back(), name);
  } else {
    bytes = encode(format, from, values.shape().back(), name);
  }
  std::vector<float> back(from.size());
  decode(format, bytes, back, name);
  ExportedTensor row{.name = name, .type = format.name, .elements = values.size(), .bytes = std::int64_t(bytes.size())};
  for (std::size_t i = 0; i < back.size(); ++i)
    row.max_error = std::max(row.max_error, double(std::abs(back[i] - from[i])));
  out.add_encoded(name, values.shape(), format.id, std::move(bytes));
  return row;
}

// The codes that the forward pass uses, moved into the type's blocks.
void add_codes(GgufWriter& out, std::vector<ExportedTensor>& rows, const LanguageModel& model, const std::string& name,
               const BlockFormat& format) {
  auto& params = model.params();
  const Array& codes = params.find(name)->second;
  Fp4Layout layout = format.elements == 64 ? Fp4Layout{16, 4} : Fp4Layout{32, 1};
  auto bytes = to_fp4_blocks({codes, params.find(block_scale_name(name))->second}, layout);
  rows.push_back({name, std::string(format.name), codes.size(), std::int64_t(bytes.size()), codes.size()});
  out.add_encoded(name, codes.shape(), format.id, std::move(bytes));
}

std::vector<ExportedTensor> export_gguf(const LanguageModel& model, const std::string& path, const Plan& plan) {
  auto& linear = block_format(plan.type);
  auto& embedding = block_format(plan.embedding);
  auto& f32 = block_format("f32");
  bool is_scaled = weight_form(model.config()) == WeightForm::Scaled;
  GgufWriter out;
  set_keys(out, model, plan.type);
  std::vector<ExportedTensor> rows;
  for (auto& p : model_params(model.config())) {
    const Array& value = model.params().find(p.name)->second;
    if (p.is_linear && is_scaled)
      add_codes(out, rows, model, p.name, linear);
    else
      rows.push_back(add_tensor(out, p.name, value,
                                p.is_linear                 ? linear
                                : value.shape().size() == 2 ? embedding
                                                            : f32));
    rows.back().params = value.size();
    if (p.is_linear && rows.back().type != linear.name)
      throw InternalError(fmt::format("[export] tensor \"{}\" was not converted to {}", p.name, linear.name));
    auto scale = model.params().find(tensor_scale_name(p.name));
    if (p.is_linear && scale != model.params().end()) {
      rows.back().max_error *= std::abs(scale->second.at(0));
      rows.push_back(add_tensor(out, scale->first, scale->second, f32));
    }
  }
  out.write(path);
  return rows;
}

}  // namespace

std::vector<ExportedTensor> export_model(const LanguageModel& model, const std::string& path,
                                         const ExportOptions& options) {
  Plan plan = plan_export(model.config(), path, options);
  return plan.is_gguf ? export_gguf(model, path, plan)
                      : save_model_safetensors(model, path, plan.type, dtype_from_string(plan.embedding));
}

}  // namespace rlx
