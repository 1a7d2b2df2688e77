// The small fixed model and its data that the independent PyTorch implementation trains too.
#pragma once
#include <array>
#include <string>

#include "base/file.h"
#include "train/data.h"
#include "train/model.h"
#include "train/tokenizer.h"

namespace rlx::reference {

inline constexpr std::int64_t kBatch = 32, kLength = 32, kSteps = 50;
inline constexpr std::array kOptimizers = {"adamw", "muon"};
inline constexpr std::array kPrecisions = {"bitnet", "f32"};

/// Rounding to codes makes training chaotic: an ulp may flip a weight's code. The sizes and learning rates are such
/// that PyTorch started from weights 1e-7 apart stays within 4e-4 of itself (it does not with the usual ones: 5e-2).
inline TrainConfig config_of(const std::string& optimizer, const std::string& precision) {
  TrainConfig c;
  c.model = {.vocab_size = 260,
             .context_length = kLength,
             .embedding_length = 16,
             .block_count = 2,
             .feed_forward_length = 24,
             .head_count = 4,
             .head_count_kv = 2,
             .rope_freq_base = 10000,
             .rms_norm_epsilon = 1e-5,
             .activation = "silu",
             .precision = precision};
  c.tokenizer = "bytes";
  c.batch_size = kBatch;
  c.optimizer = optimizer;
  if (precision == "bitnet") {
    c.learning_rate = optimizer == "muon" ? 3e-4 : 5e-4;
    c.muon_learning_rate = 5e-4;
  }
  c.weight_decay = 0.1;
  c.schedule = "cosine";
  c.warmup_steps = 10;
  c.steps = 100;
  c.seed = 7;
  return c;
}

/// Tokens i32 [kBatch, kLength + 1] of each step: English text, a licence.
inline std::vector<Array> batches(const std::string& source_folder) {
  std::string text = read_file(source_folder + "/LICENSE-APACHE", 1 << 20);
  auto tokens = Tokenizer::bytes().encode(text);
  BatchSampler sampler(tokens, kLength, 3);
  std::vector<Array> out;
  for (std::int64_t step = 0; step < kSteps; ++step) out.push_back(sampler.batch(step, kBatch));
  return out;
}

}  // namespace rlx::reference
