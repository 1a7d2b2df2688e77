// A trained model: loading it, and asking it.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <numbers>

#include "rlx/train.h"
#include "train/checkpoint.h"
#include "train/config.h"
#include "train/generate.h"
#include "train/model_gguf.h"
#include "train/model_safetensors.h"
#include "train/score.h"

namespace rlx {

struct LanguageModel::State {
  ModelConfig config;
  std::shared_ptr<const Tokenizer> tokenizer;
  Tensors params;
  Device device;
  std::optional<CompiledGraph> logits;
  std::optional<Scorer> scorer;
  std::optional<Decoder> decoder;
};

LanguageModel::LanguageModel(ModelConfig config, std::shared_ptr<const Tokenizer> tokenizer, Tensors params,
                             Device device)
    : state_(new State{std::move(config), std::move(tokenizer), std::move(params), std::move(device), {}, {}, {}}) {
  if (state_->tokenizer->size() != state_->config.vocab_size)
    throw UserError(fmt::format("[model] the tokenizer has {} tokens, expected the model's {}",
                                state_->tokenizer->size(), state_->config.vocab_size));
}
LanguageModel::LanguageModel(LanguageModel&&) noexcept = default;
LanguageModel::~LanguageModel() = default;

const ModelConfig& LanguageModel::config() const { return state_->config; }
const Tokenizer& LanguageModel::tokenizer() const { return *state_->tokenizer; }
const Tensors& LanguageModel::params() const { return state_->params; }

LanguageModel LanguageModel::load(const std::string& path, Device device) {
  if (!std::filesystem::is_directory(path))
    return path.ends_with(".safetensors") ? load_model_safetensors(path, std::move(device))
                                          : load_model_gguf(path, std::move(device));
  if (!is_run(path)) throw UserError(fmt::format("[model] '{}' is no run: it has no run.json", path));
  auto folder = find_checkpoint(path);
  if (!folder) throw UserError(fmt::format("[model] the run '{}' has no checkpoint yet", path));
  Checkpoint c = load_checkpoint(*folder);
  c.config.model = phase_of(c.config.model, c.weights);
  auto tokenizer = std::make_shared<const Tokenizer>(load_checkpoint_tokenizer(*folder));
  return {c.config.model, tokenizer, inference_params(c.config.model, c.weights), std::move(device)};
}

Array LanguageModel::logits(std::span<const std::int32_t> tokens) {
  auto& s = *state_;
  if (tokens.empty()) throw UserError("[logits] there are no tokens");
  for (auto token : tokens)
    if (token < 0 || token >= s.config.vocab_size)
      throw UserError(fmt::format("[logits] got token {}, expected one from 0 to {}", token, s.config.vocab_size - 1));
  if (!s.logits) {
    s.logits = Session(s.device).compile(logits_graph(s.config), {.name = "logits"});
    for (auto& [name, value] : s.params) s.logits->set_param(name, value);
  }
  Array input(std::vector<std::int32_t>(tokens.begin(), tokens.end()), {std::int64_t(tokens.size())});
  return s.logits->run({{"tokens", input}})[0];
}

Evaluation LanguageModel::evaluate(std::string_view text) {
  auto& s = *state_;
  if (text.empty()) throw UserError("[eval] the text is empty");
  auto tokens = s.tokenizer->encode(text);
  if (!s.scorer) {
    s.scorer.emplace(s.config, s.device);
    s.scorer->set_params(s.params);
  }
  double nats = s.scorer->nats(tokens, s.config.context_length);
  return {.bits_per_byte = nats / std::numbers::ln2 / double(text.size()),
          .perplexity = std::exp(nats / double(tokens.size())),
          .tokens = std::int64_t(tokens.size()),
          .bytes = std::int64_t(text.size())};
}

Generation LanguageModel::generate(std::string_view prompt, const GenerateOptions& options,
                                   const std::function<void(std::string_view)>& on_text) {
  auto& s = *state_;
  check_generate_options(options);
  std::vector<std::int32_t> history = s.tokenizer->encode(prompt);
  if (history.empty()) throw UserError("[generate] the prompt is empty");
  Generation out{.tokens = {}, .prompt_tokens = std::int64_t(history.size())};
  if (!s.decoder) s.decoder.emplace(s.config, s.params, s.device, s.config.context_length);
  Decoder& decoder = *s.decoder;
  // Where there is no room for one more, reads the last half of a context anew.
  Array logits;
  auto read = [&](std::int32_t token) {
    if (decoder.position() == decoder.capacity()) {
      decoder.reset();
      auto keep = std::min<std::size_t>(history.size() - 1, std::size_t(decoder.capacity() / 2));
      for (std::size_t i = history.size() - 1 - keep; i + 1 < history.size(); ++i) decoder.read(history[i]);
    }
    logits = decoder.read(token);
  };
  decoder.reset();
  auto first = history.size() > std::size_t(decoder.capacity()) ? history.end() - decoder.capacity() : history.begin();
  for (auto token = first; token != history.end(); ++token) logits = decoder.read(*token);

  PhiloxStream random(options.seed, 0x67656e);  // "gen"
  Utf8Joiner joiner;
  auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    std::int32_t token = sample_token(logits.values<float>(), options, random);
    out.tokens.push_back(token);
    history.push_back(token);
    if (std::string text = joiner.add(s.tokenizer->text_of(token)); on_text && !text.empty()) on_text(text);
    if (i + 1 < options.tokens) read(token);
  }
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (std::string text = joiner.finish(); on_text && !text.empty()) on_text(text);
  out.tokens_per_s = seconds > 0 && out.tokens.size() > 1 ? double(out.tokens.size() - 1) / seconds : 0;
  return out;
}

}  // namespace rlx
