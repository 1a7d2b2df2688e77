// Tokenizers in GGUF files: out and in again, llama.cpp's meaning of missing keys, refusals.
#include "train/tokenizer_gguf.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "temporary.h"

namespace rlx {
namespace {

using Keys = std::vector<std::pair<std::string, GgufValue>>;

Tokenizer through_a_file(Keys keys) {
  std::string path = temporary_path("tokenizer.gguf");
  GgufWriter writer;
  for (auto& [key, value] : keys) writer.set(key, value);
  writer.write(path);
  GgufFile file = GgufFile::open(path);
  std::filesystem::remove(path);
  return load_gguf_tokenizer(file);
}

Keys without(Keys keys, std::string_view name) {
  std::erase_if(keys, [&](auto& entry) { return entry.first == name; });
  return keys;
}

TEST(GgufTokenizer, ComesBack) {
  Vocabulary v = Tokenizer::bytes().vocabulary();
  EXPECT_EQ(through_a_file(tokenizer_keys(v)).vocabulary(), v);
}

TEST(GgufTokenizer, MissingKeysMeanWhatTheyDoToLlamaCpp) {
  Vocabulary v = Tokenizer::bytes().vocabulary();
  Keys keys = tokenizer_keys(v);
  for (auto name : {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_space_prefix", "tokenizer.ggml.bos_token_id",
                    "tokenizer.ggml.eos_token_id", "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.scores"})
    keys = without(keys, name);
  v.add_bos = v.add_space_prefix = true;
  EXPECT_EQ(through_a_file(keys).vocabulary(), v);
}

TEST(GgufTokenizer, OtherKindsAreRefused) {
  Keys keys = tokenizer_keys(Tokenizer::bytes().vocabulary());
  keys[0].second = std::string("gpt2");
  try {
    through_a_file(keys);
    FAIL() << "accepted";
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find("got tokenizer model \"gpt2\""), std::string::npos) << error.what();
  }
  EXPECT_THROW(through_a_file(without(tokenizer_keys(Tokenizer::bytes().vocabulary()), "tokenizer.ggml.tokens")),
               UserError);
}

}  // namespace
}  // namespace rlx
