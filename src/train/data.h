// Training data: a text file, checked, split, tokenized, and drawn from in batches by seed.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rlx/array.h"
#include "train/tokenizer.h"

namespace rlx {

/// The text of a file. Throws DeviceError where it cannot be read, UserError where it is empty, has a NUL byte or is
/// not UTF-8; the message names the file and the offset.
std::string read_text(const std::string& path);

/// The offset at which validation begins: the first line start that leaves at most `validation_fraction` of the text
/// behind it. A text whose last lines are longer than that is split at the last line start, one without line ends
/// between characters. Throws UserError where either part would be empty or the fraction is not in (0, 1).
std::size_t split_text(std::string_view text, double validation_fraction);

struct DataOptions {
  std::string tokenizer = "bpe";  // or "bytes"
  int vocab_size = 2048;          // of a bpe tokenizer
  double validation_fraction = 0.03;
};

/// A text as a model trains on it.
struct TextData {
  Tokenizer tokenizer;
  std::vector<std::int32_t> train, validation;         // tokens
  std::int64_t train_bytes = 0, validation_bytes = 0;  // of text; training text comes first in the file
};

/// Reads the text, trains the tokenizer on its training part, encodes both parts, and keeps the result in `folder`:
/// tokenizer.json, train_tokens.npy, validation_tokens.npy and data.json (the split). Errors as those of its steps.
TextData prepare_data(const std::string& path, const DataOptions& options, const std::string& folder);
/// What prepare_data kept; the text itself is not needed again.
TextData load_data(const std::string& folder);

/// Draws windows of `length + 1` tokens. Every epoch covers the tokens evenly: windows side by side from a random
/// offset, in random order. What is drawn is a pure function of seed and index, so a run resumes from its step alone.
class BatchSampler {
 public:
  /// The tokens must outlive the sampler. Throws UserError where there are fewer than `length + 1`.
  BatchSampler(std::span<const std::int32_t> tokens, std::int64_t length, std::uint64_t seed);
  /// The batch of that index: i32 [size, length + 1].
  Array batch(std::int64_t index, std::int64_t size);
  /// Where window `index` of the whole sequence begins.
  std::int64_t start_of(std::int64_t index);
  std::int64_t windows_per_epoch() const { return windows_; }

 private:
  std::span<const std::int32_t> tokens_;
  std::int64_t length_, windows_, epoch_ = -1, offset_ = 0;
  std::uint64_t seed_;
  std::vector<std::int64_t> order_;  // of the windows in epoch_
};

}  // namespace rlx
