// Text from a model, token by token.
#pragma once
#include "base/philox.h"
#include "rlx/train.h"
#include "train/model.h"

namespace rlx {

/// A model that reads one token at a time, with the keys and values of those before in its cache.
class Decoder {
 public:
  Decoder(const ModelConfig&, const Tensors& inference_params, Device, std::int64_t capacity);
  std::int64_t position() const { return position_; }
  std::int64_t capacity() const { return capacity_; }
  /// Forgets what was read.
  void reset() { position_ = 0; }
  /// The logits of what follows. Throws UserError where the cache is full.
  Array read(std::int32_t token);

 private:
  std::int64_t capacity_, position_ = 0;
  CompiledGraph graph_;
};

/// Draws a token: the likeliest top_k of the logits over the temperature, of those the likeliest that reach top_p
/// together. Equal logits rank by id. Always uses one random number. Throws UserError where a logit is NaN.
std::int32_t sample_token(std::span<const float> logits, const GenerateOptions&, PhiloxStream&);
void check_generate_options(const GenerateOptions&);

/// Joins pieces of bytes to whole UTF-8 characters.
class Utf8Joiner {
 public:
  /// The characters that are complete now; a byte that is part of none becomes U+FFFD.
  std::string add(std::string_view bytes);
  /// What is left, as U+FFFD.
  std::string finish();

 private:
  std::string rest_;
};

}  // namespace rlx
