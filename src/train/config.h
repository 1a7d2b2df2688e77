// What the parts of a run share about its config.
#pragma once
#include "rlx/train.h"

namespace rlx {

inline constexpr std::int64_t kByteVocabSize = 260;  // Tokenizer::bytes()

/// Calls f(key, member) for each number or name of the model.
template <class Config, class F>
void visit_model_config(Config& c, F&& f) {
  f("vocab_size", c.vocab_size);
  f("context_length", c.context_length);
  f("embedding_length", c.embedding_length);
  f("block_count", c.block_count);
  f("feed_forward_length", c.feed_forward_length);
  f("head_count", c.head_count);
  f("head_count_kv", c.head_count_kv);
  f("rope_freq_base", c.rope_freq_base);
  f("rms_norm_epsilon", c.rms_norm_epsilon);
  f("activation", c.activation);
}
/// The model's keys alone, which parse_config reads.
std::string model_config_json(const ModelConfig&);
void check_model_config(const ModelConfig&, const std::string& where);
/// What `optimizer` may be.
const std::vector<std::string>& optimizer_names();

}  // namespace rlx
