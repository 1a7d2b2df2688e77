// Tokenizers in GGUF files.
#include "train/tokenizer_gguf.h"

#include <fmt/format.h>

namespace rlx {
namespace {

template <class T>
T value_or(const GgufFile& file, std::string_view key, T otherwise) {
  return file.find(key) ? file.get<T>(key) : otherwise;
}

std::int32_t id_or(const GgufFile& file, std::string_view key, std::int32_t otherwise) {
  if (!file.find(key)) return otherwise;
  std::int64_t id = file.get_int(key);
  if (id != std::int32_t(id))
    throw UserError(fmt::format("[tokenizer] {}: {} is {}, no token id", file.path(), key, id));
  return std::int32_t(id);
}

}  // namespace

std::vector<std::pair<std::string, GgufValue>> tokenizer_keys(const Vocabulary& v) {
  std::vector<std::int32_t> types;
  for (TokenType type : v.types) types.push_back(std::int32_t(type));
  return {{"tokenizer.ggml.model", std::string("llama")},
          {"tokenizer.ggml.tokens", v.tokens},
          {"tokenizer.ggml.scores", v.scores},
          {"tokenizer.ggml.token_type", types},
          {"tokenizer.ggml.bos_token_id", std::uint32_t(v.bos_id)},
          {"tokenizer.ggml.eos_token_id", std::uint32_t(v.eos_id)},
          {"tokenizer.ggml.unknown_token_id", std::uint32_t(v.unknown_id)},
          {"tokenizer.ggml.padding_token_id", std::uint32_t(v.padding_id)},
          {"tokenizer.ggml.add_bos_token", v.add_bos},
          {"tokenizer.ggml.add_eos_token", false},
          {"tokenizer.ggml.add_space_prefix", v.add_space_prefix}};
}

Tokenizer load_gguf_tokenizer(const GgufFile& file) {
  const std::string& model = file.get<std::string>("tokenizer.ggml.model");
  if (model != "llama")
    throw Unsupported(fmt::format(
        "[tokenizer] {}: got tokenizer model \"{}\", only \"llama\" (SentencePiece) is supported", file.path(), model));
  Vocabulary v;
  v.tokens = file.get<std::vector<std::string>>("tokenizer.ggml.tokens");
  v.scores = value_or(file, "tokenizer.ggml.scores", std::vector<float>(v.tokens.size()));
  for (std::int32_t type : value_or(file, "tokenizer.ggml.token_type",
                                    std::vector<std::int32_t>(v.tokens.size(), std::int32_t(TokenType::Normal))))
    v.types.push_back(TokenType(type));
  v.unknown_id = id_or(file, "tokenizer.ggml.unknown_token_id", 0);
  v.bos_id = id_or(file, "tokenizer.ggml.bos_token_id", 1);
  v.eos_id = id_or(file, "tokenizer.ggml.eos_token_id", 2);
  v.padding_id = id_or(file, "tokenizer.ggml.padding_token_id", v.unknown_id);
  v.add_bos = value_or(file, "tokenizer.ggml.add_bos_token", true);
  v.add_space_prefix = value_or(file, "tokenizer.ggml.add_space_prefix", true);
  return Tokenizer(std::move(v));
}

}  // namespace rlx
