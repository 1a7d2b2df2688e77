// Text ↔ tokens: byte-pair tokenizers trained with SentencePiece, and bytes. Encoding is the algorithm of llama.cpp's
// "llama" (SentencePiece) tokenizer, so an exported model reads text as it was trained to.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rlx {

/// What a token is, in GGUF's numbers.
enum class TokenType : std::int32_t { Normal = 1, Unknown = 2, Control = 3, UserDefined = 4, Unused = 5, Byte = 6 };

/// A tokenizer's whole state, as GGUF's `tokenizer.ggml.*` keys hold it (`model` is "llama").
struct Vocabulary {
  std::vector<std::string> tokens;  // a space is written U+2581; byte tokens are written <0x00> … <0xFF>
  std::vector<float> scores;        // the pair with the highest is merged first
  std::vector<TokenType> types;
  std::int32_t unknown_id = 0, bos_id = 1, eos_id = 2, padding_id = 0;
  bool add_bos = false;           // encode never adds one; the flag is the file's word to other programs
  bool add_space_prefix = false;  // encode puts a space before the text

  bool operator==(const Vocabulary&) const = default;
};

struct BpeOptions {
  int vocab_size = 2048;
  double character_coverage = 0.9995;  // rarer characters are spelled in bytes
};

class Tokenizer {
 public:
  /// Byte-pair pieces with byte fallback, no normalisation, all white space kept. Throws UserError where the text is
  /// not UTF-8, has NUL bytes or is too short for so many pieces. `model` receives the SentencePiece model file.
  static Tokenizer train_bpe(std::string_view text, const BpeOptions& options = {}, std::string* model = nullptr);
  /// One token a byte: 256, three specials, and the space as a piece, which llama.cpp needs.
  static Tokenizer bytes();
  /// Throws UserError where the parts do not fit together, Unsupported where the vocabulary has user-defined tokens.
  explicit Tokenizer(Vocabulary vocabulary);

  /// One JSON file. Throws UserError where it is not one, DeviceError where it cannot be read or written.
  static Tokenizer load(const std::string& path);
  void save(const std::string& path) const;
  /// The same as text; `where` is for messages.
  static Tokenizer parse(std::string_view json, const std::string& where);
  std::string json() const;

  /// Never fails; bytes that are not UTF-8 become byte tokens. `decode(encode(x)) == x` for every x, where the
  /// vocabulary has all byte tokens. (A literal U+2581 is spelled in bytes, where llama.cpp reads it as a space.)
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// Throws UserError on an id outside the vocabulary. Control and unknown tokens give no text.
  std::string decode(std::span<const std::int32_t> tokens) const;
  /// What one token decodes to; may be part of a character.
  const std::string& text_of(std::int32_t token) const;

  std::int32_t size() const { return std::int32_t(vocabulary_.tokens.size()); }
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  void encode_word(std::string_view word, std::vector<std::int32_t>& out) const;

  Vocabulary vocabulary_;
  std::vector<std::string> texts_;
  std::unordered_map<std::string, std::int32_t> pieces_;  // those that text can be merged to
  std::vector<std::int32_t> byte_ids_;
  bool words_are_separate_ = true;  // no piece reaches over a space
};

}  // namespace rlx
