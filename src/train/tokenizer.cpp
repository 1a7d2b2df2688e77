// Text ↔ tokens: training with SentencePiece, SentencePiece's BPE merging, the JSON file.
#include "train/tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <queue>

#include "base/file.h"
#include "base/utf8.h"
#include "rlx/base.h"

namespace rlx {
namespace {

constexpr std::string_view kSpace = "\u2581";  // how pieces write a space
constexpr std::size_t kChunk = 4096;           // bytes of text that the trainer gets as one sentence, at least

/// The text in runs of whole lines with their newlines, so that newlines are pieces like any other character.
class ChunkIterator : public sentencepiece::SentenceIterator {
 public:
  explicit ChunkIterator(std::string_view text) : rest_(text) { Next(); }
  bool done() const override { return chunk_.empty(); }
  const std::string& value() const override { return chunk_; }
  sentencepiece::util::Status status() const override { return {}; }
  void Next() override {
    std::size_t end = rest_.find('\n', std::min(rest_.size(), kChunk));
    std::size_t size = end == std::string_view::npos ? rest_.size() : end + 1;
    chunk_ = rest_.substr(0, size);
    rest_.remove_prefix(size);
  }

 private:
  std::string_view rest_;
  std::string chunk_;
};

std::size_t longest_line(std::string_view text) {
  std::size_t longest = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(text.find('\n', at), text.size() - 1);
    longest = std::max(longest, end - at + 1);
    at = end + 1;
  }
  return longest;
}

std::string byte_token(int byte) { return fmt::format("<0x{:02X}>", byte); }

/// The byte that a token of type Byte stands for, −1 where its text is not of that form.
int byte_of(std::string_view token) {
  int byte = -1;
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
  auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  return error == std::errc() && end == token.data() + 5 ? byte : -1;
}

std::string with_plain_spaces(std::string_view piece) {
  std::string text;
  for (std::size_t at = 0; at < piece.size();) {
    bool space = piece.substr(at).starts_with(kSpace);
    text += space ? ' ' : piece[at];
    at += space ? kSpace.size() : 1;
  }
  return text;
}

TokenType type_of(const sentencepiece::SentencePieceProcessor& model, int id) {
  if (model.IsUnknown(id)) return TokenType::Unknown;
  if (model.IsControl(id)) return TokenType::Control;
  if (model.IsByte(id)) return TokenType::Byte;
  if (model.IsUnused(id)) return TokenType::Unused;
  return TokenType::Normal;
}

}  // namespace

// ---------------------------------------------------------------------------------------------- making one

Tokenizer Tokenizer::train_bpe(std::string_view text, const BpeOptions& options, std::string* model) {
  if (text.empty()) throw UserError("[tokenizer] the text to train on is empty");
  if (std::size_t at = std::min(find_invalid_utf8(text), text.find('\0')); at != std::string_view::npos)
    throw UserError(fmt::format("[tokenizer] got binary data, expected UTF-8 text without NUL bytes: at byte {}", at));
  ChunkIterator chunks(text);
  std::string serialized;
  auto status = sentencepiece::SentencePieceTrainer::Train(
      {{"model_type", "bpe"},
       {"vocab_size", std::to_string(options.vocab_size)},
       {"character_coverage", std::to_string(options.character_coverage)},
       {"byte_fallback", "true"},
       {"normalization_rule_name", "identity"},
       {"remove_extra_whitespaces", "false"},
       {"add_dummy_prefix", "false"},
       {"max_sentence_length", std::to_string(longest_line(text) + kChunk + 1)},
       {"unk_id", "0"},
       {"bos_id", "1"},
       {"eos_id", "2"},
       {"pad_id", "-1"},
       {"minloglevel", "2"}},
      &chunks, &serialized);
  if (!status.ok())
    throw UserError(fmt::format("[tokenizer] no {} pieces can be learned from a text of {} bytes: {}",
                                options.vocab_size, text.size(), status.message()));

  sentencepiece::SentencePieceProcessor processor;
  status = processor.LoadFromSerializedProto(serialized);
  if (!status.ok()) throw InternalError(fmt::format("[tokenizer] cannot read what was trained: {}", status.message()));
  Vocabulary vocabulary;
  for (int id = 0; id < processor.GetPieceSize(); ++id) {
    vocabulary.tokens.push_back(processor.IdToPiece(id));
    vocabulary.scores.push_back(processor.GetScore(id));
    vocabulary.types.push_back(type_of(processor, id));
  }
  if (model) *model = std::move(serialized);
  return Tokenizer(std::move(vocabulary));
}

Tokenizer Tokenizer::bytes() {
  Vocabulary vocabulary{.tokens = {"<unk>", "<s>", "</s>"},
                        .scores = {},
                        .types = {TokenType::Unknown, TokenType::Control, TokenType::Control}};
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.push_back(byte_token(byte));
    vocabulary.types.push_back(TokenType::Byte);
  }
  vocabulary.tokens.emplace_back(kSpace);
  vocabulary.types.push_back(TokenType::Normal);
  vocabulary.scores.resize(vocabulary.tokens.size());
  return Tokenizer(std::move(vocabulary));
}

Tokenizer::Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)), byte_ids_(256, -1) {
  const Vocabulary& v = vocabulary_;
  if (v.tokens.empty() || v.scores.size() != v.tokens.size() || v.types.size() != v.tokens.size())
    throw UserError(
        fmt::format("[tokenizer] got {} tokens, {} scores and {} types, expected as many of each, 1 or more",
                    v.tokens.size(), v.scores.size(), v.types.size()));
  for (std::int32_t id : {v.unknown_id, v.bos_id, v.eos_id, v.padding_id})
    if (id < 0 || id >= size())
      throw UserError(fmt::format("[tokenizer] got special token id {}, expected one below {}", id, size()));

  texts_.resize(v.tokens.size());
  for (std::int32_t id = 0; id < size(); ++id) {
    const std::string& token = v.tokens[id];
    switch (v.types[id]) {
      case TokenType::Normal:
        texts_[id] = with_plain_spaces(token);
        pieces_.emplace(token, id);
        words_are_separate_ = words_are_separate_ && (token.empty() || token.find(kSpace, 1) == std::string::npos);
        break;
      case TokenType::Byte: {
        int byte = byte_of(token);
        if (byte < 0)
          throw UserError(fmt::format("[tokenizer] got byte token {} \"{}\", expected <0x00> … <0xFF>", id, token));
        texts_[id] = std::string(1, char(byte));
        byte_ids_[byte] = id;
        break;
      }
      case TokenType::Unknown:
      case TokenType::Control:
      case TokenType::Unused: break;
      case TokenType::UserDefined:
        throw Unsupported(fmt::format("[tokenizer] user-defined tokens are not supported: token {} \"{}\"", id, token));
      default:
        throw UserError(fmt::format("[tokenizer] got type {} for token {}, expected 1 to 6", int(v.types[id]), id));
    }
  }
}

// ---------------------------------------------------------------------------------------------- encoding

void Tokenizer::encode_word(std::string_view word, std::vector<std::int32_t>& out) const {
  // The characters, as a list whose neighbours are merged. What cannot be part of a piece stands as single bytes: bytes
  // that are not UTF-8, and a literal U+2581, which would decode to a space.
  struct Symbol {
    int begin, size, previous, next;
  };
  std::string text;
  std::vector<Symbol> symbols;
  auto add_symbol = [&](std::string_view bytes) {
    int i = int(symbols.size());
    symbols.push_back({int(text.size()), int(bytes.size()), i - 1, i + 1});
    text += bytes;
  };
  for (std::size_t at = 0; at < word.size();) {
    std::size_t length = std::max<std::size_t>(utf8_length(word, at), 1);
    std::string_view character = word.substr(at, length);
    if (character == kSpace)
      for (std::size_t i = 0; i < length; ++i) add_symbol(character.substr(i, 1));
    else
      add_symbol(character == " " ? kSpace : character);
    at += length;
  }
  symbols.back().next = -1;

  struct Merge {
    float score;
    int left, right, size;  // size tells a merge whose parts have changed since
    bool operator<(const Merge& other) const {
      return score < other.score || (score == other.score && left > other.left);
    }
  };
  std::priority_queue<Merge> merges;
  std::string pair;
  auto propose = [&](int left, int right) {
    if (left < 0 || right < 0) return;
    pair.assign(text, symbols[left].begin, symbols[left].size + symbols[right].size);
    auto piece = pieces_.find(pair);
    if (piece != pieces_.end()) merges.push({vocabulary_.scores[piece->second], left, right, int(pair.size())});
  };
  for (int i = 1; i < int(symbols.size()); ++i) propose(i - 1, i);
  while (!merges.empty()) {
    Merge m = merges.top();
    merges.pop();
    Symbol &left = symbols[m.left], &right = symbols[m.right];
    if (left.size == 0 || right.size == 0 || left.size + right.size != m.size) continue;
    left.size = m.size;
    right.size = 0;
    left.next = right.next;
    if (right.next >= 0) symbols[right.next].previous = m.left;
    propose(left.previous, m.left);
    propose(m.left, left.next);
  }

  for (int i = 0; i >= 0; i = symbols[i].next) {
    std::string_view symbol(text.data() + symbols[i].begin, symbols[i].size);
    auto piece = pieces_.find(std::string(symbol));
    if (piece != pieces_.end()) {
      out.push_back(piece->second);
      continue;
    }
    if (symbol == kSpace) symbol = " ";  // a vocabulary without a piece for the space
    for (unsigned char byte : symbol) out.push_back(byte_ids_[byte] >= 0 ? byte_ids_[byte] : vocabulary_.unknown_id);
  }
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> out;
  if (text.empty()) return out;
  std::string prefixed;
  if (vocabulary_.add_space_prefix) text = prefixed = " " + std::string(text);
  if (!words_are_separate_) {
    encode_word(text, out);
    return out;
  }
  // No merge reaches over a space, so words are encoded alone, each different one once.
  std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> seen;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(text.find(' ', at + 1), text.size());
    std::string_view word = text.substr(at, end - at);
    auto [entry, is_new] = seen.try_emplace(word, out.size(), 0);
    auto& [first, count] = entry->second;
    if (is_new) {
      encode_word(word, out);
      count = out.size() - first;
    } else {
      for (std::size_t i = 0; i < count; ++i) out.push_back(out[first + i]);
    }
    at = end;
  }
  return out;
}

const std::string& Tokenizer::text_of(std::int32_t token) const {
  if (token < 0 || token >= size())
    throw UserError(fmt::format("[tokenizer] got token id {}, expected one below {}", token, size()));
  return texts_[token];
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (std::int32_t token : tokens) text += text_of(token);
  if (vocabulary_.add_space_prefix && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

// ---------------------------------------------------------------------------------------------- the file

std::string Tokenizer::json() const {
  const Vocabulary& v = vocabulary_;
  std::vector<int> types;
  for (TokenType type : v.types) types.push_back(int(type));
  nlohmann::ordered_json file = {{"format", "rlx-tokenizer"},
                                 {"version", 1},
                                 {"unknown_id", v.unknown_id},
                                 {"bos_id", v.bos_id},
                                 {"eos_id", v.eos_id},
                                 {"padding_id", v.padding_id},
                                 {"add_bos", v.add_bos},
                                 {"add_space_prefix", v.add_space_prefix},
                                 {"tokens", v.tokens},
                                 {"scores", v.scores},
                                 {"types", types}};
  return file.dump();
}

void Tokenizer::save(const std::string& path) const { write_file_atomic(path, json() + "\n"); }

Tokenizer Tokenizer::load(const std::string& path) { return parse(read_file(path), path); }

Tokenizer Tokenizer::parse(std::string_view json, const std::string& where) {
  try {
    auto file = nlohmann::json::parse(json);
    if (file.at("format") != "rlx-tokenizer" || file.at("version") != 1)
      throw UserError(fmt::format("[tokenizer] {}: not a version 1 tokenizer file", where));
    Vocabulary v{.tokens = file.at("tokens"),
                 .scores = file.at("scores"),
                 .types = {},
                 .unknown_id = file.at("unknown_id"),
                 .bos_id = file.at("bos_id"),
                 .eos_id = file.at("eos_id"),
                 .padding_id = file.at("padding_id"),
                 .add_bos = file.at("add_bos"),
                 .add_space_prefix = file.at("add_space_prefix")};
    for (int type : file.at("types")) v.types.push_back(TokenType(type));
    return Tokenizer(std::move(v));
  } catch (const nlohmann::json::exception& error) {
    throw UserError(fmt::format("[tokenizer] {}: not a tokenizer file: {}", where, error.what()));
  }
}

}  // namespace rlx
