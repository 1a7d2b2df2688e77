// A trained model as a GGUF file for llama.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "quant/block_format.h"
#include "rlx/train.h"
#include "train/model.h"
#include "train/tokenizer_gguf.h"

namespace rlx {
namespace {

const BlockFormat& checked_format(const std::string& name, std::initializer_list<std::string_view> allowed,
                                  const char* what) {
  for (auto a : allowed)
    if (a == name) return block_format(name);
  throw UserError(fmt::format("[export] got {} type \"{}\", expected one of {}", what, name, fmt::join(allowed, ", ")));
}

bool is_ternary(const BlockFormat& f) { return f.encode_ternary != nullptr; }

// Everything that can be refused is, before a byte is written.
void check_exportable(const ModelConfig& c, const BlockFormat& linear, const BlockFormat& embedding) {
  if (c.activation != "silu")
    throw Unsupported(fmt::format(
        "[export] the model's activation is {}, but llama.cpp computes bitnet models with silu", c.activation));
  if (is_ternary(linear) && c.precision != "bitnet")
    throw UserError(fmt::format(
        "[export] {} holds ternary weights, but the model was trained in {} precision: use f16, bf16 or f32",
        linear.name, c.precision));
  auto check_rows = [](const ParamInfo& p, const BlockFormat& format) {
    if (p.shape[1] % format.elements != 0)
      throw UserError(fmt::format("[export] tensor \"{}\" is {}: its rows of {} are no multiple of {}, which {} needs",
                                  p.name, to_string(p.shape), p.shape[1], format.elements, format.name));
  };
  auto params = model_params(c);
  for (auto& p : params)
    if (p.is_linear) check_rows(p, linear);
  check_rows(params[0], embedding);
}

std::uint32_t file_type(std::string_view type) {
  if (type == "f32") return 0;
  if (type == "f16") return 1;
  if (type == "bf16") return 32;
  return type == "tq1_0" ? 36 : 37;
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

}  // namespace

std::vector<ExportedTensor> export_gguf(const LanguageModel& model, const std::string& path,
                                        const ExportOptions& options) {
  auto& linear = checked_format(options.type, {"tq2_0", "tq1_0", "f16", "bf16", "f32"}, "weight");
  std::string embedding_type = !options.embedding.empty() ? options.embedding
                               : is_ternary(linear)       ? "q8_0"
                                                          : options.type;
  auto& embedding = checked_format(embedding_type, {"f16", "bf16", "q8_0", "f32"}, "embedding");
  auto& f32 = block_format("f32");
  check_exportable(model.config(), linear, embedding);
  GgufWriter out;
  set_keys(out, model, options.type);
  std::vector<ExportedTensor> rows;
  for (auto& p : model_params(model.config())) {
    const Array& value = model.params().find(p.name)->second;
    rows.push_back(add_tensor(out, p.name, value, p.is_linear ? linear : value.shape().size() == 2 ? embedding : f32));
    if (p.is_linear && rows.back().type != linear.name)
      throw InternalError(fmt::format("[export] tensor \"{}\" was not converted to {}", p.name, linear.name));
    auto scale = model.params().find(scale_name(p.name));
    if (p.is_linear && scale != model.params().end()) {
      rows.back().max_error *= std::abs(scale->second.at(0));
      rows.push_back(add_tensor(out, scale->first, scale->second, f32));
    }
  }
  out.write(path);
  return rows;
}

}  // namespace rlx
