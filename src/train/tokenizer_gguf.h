// Tokenizers in GGUF files: the `tokenizer.ggml.*` keys.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "rlx/files.h"
#include "train/tokenizer.h"

namespace rlx {

/// The keys that describe the tokenizer, for a GGUF file that llama.cpp reads text with as RLX does.
std::vector<std::pair<std::string, GgufValue>> tokenizer_keys(const Vocabulary& vocabulary);

/// The tokenizer of a file. Keys that are missing mean what they mean to llama.cpp. Throws Unsupported where it is not
/// of the "llama" (SentencePiece) kind or has user-defined tokens, UserError where there is none or it is malformed.
Tokenizer load_gguf_tokenizer(const GgufFile& file);

}  // namespace rlx
