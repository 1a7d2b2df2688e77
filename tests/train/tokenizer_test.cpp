// Tokenizers against SentencePiece itself and against tokens that llama.cpp made (make_llama_tokens.py).
#include "train/tokenizer.h"

#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/philox.h"
#include "message_of.h"
#include "rlx/base.h"
#include "temporary.h"

namespace rlx {
namespace {

/// Lines of made-up words whose frequencies fall as those of a language do.
std::string made_up_text(int words) {
  PhiloxStream random(11, 0);
  const char* syllables[] = {"ka", "to", "ri", "men", "sol", "ve", "an", "ther", "i", "lo", "quen", "sta"};
  std::vector<std::string> lexicon;
  for (int i = 0; i < 300; ++i) {
    std::string word;
    for (std::uint64_t n = 1 + random.next_below(3); n-- > 0;) word += syllables[random.next_below(12)];
    lexicon.push_back(word);
  }
  std::string text;
  for (int i = 0; i < words; ++i) {
    float u = random.next_uniform();
    text += lexicon[std::size_t(u * u * u * 300)];
    text += i % 12 == 11 ? ".\n" : i % 5 == 4 ? ", " : " ";
  }
  return text;
}

std::vector<std::string> hard_texts() {
  return {"",
          " ",
          "\n\n",
          "kato rimen  sol   ve\n",
          "  leading and trailing  ",
          "tab\tand\r\nreturn",
          std::string(1000, 'a'),
          std::string(100, ' '),
          "naïve café – “quoted” … €100 漢字 🙂",
          "unseen WORDS 123, 45:6.\n\nNew paragraph"};
}

struct Trained {
  std::string text = made_up_text(20000), model;
  Tokenizer tokenizer = Tokenizer::train_bpe(text, {.vocab_size = 500}, &model);
};
const Trained& trained() {
  static const Trained t;
  return t;
}

TEST(Tokenizer, EncodesAsSentencePieceDoes) {
  sentencepiece::SentencePieceProcessor reference;
  ASSERT_TRUE(reference.LoadFromSerializedProto(trained().model).ok());
  auto texts = hard_texts();
  texts.push_back(trained().text);
  for (const std::string& text : texts) {
    EXPECT_EQ(trained().tokenizer.encode(text), reference.EncodeAsIds(text)) << text.substr(0, 60);
  }
}

TEST(Tokenizer, EncodesAsLlamaCppDoes) {
  auto file = nlohmann::json::parse(read_file(RLX_TESTS_DIR "/train/data/llama_tokens.json"));
  std::string path = temporary_path("llama_vocabulary.json");
  write_file_atomic(path, file.at("vocabulary").dump());
  Tokenizer tokenizer = Tokenizer::load(path);
  for (auto& item : file.at("cases")) {
    std::string text = item.at("text");
    EXPECT_EQ(tokenizer.encode(text), item.at("tokens").get<std::vector<std::int32_t>>()) << text;
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
  std::filesystem::remove(path);
}

TEST(Tokenizer, HasTheVocabularyThatGgufWants) {
  const Vocabulary& v = trained().tokenizer.vocabulary();
  ASSERT_EQ(v.tokens.size(), 500u);
  EXPECT_EQ(v.tokens[v.unknown_id], "<unk>");
  EXPECT_EQ(v.tokens[v.bos_id], "<s>");
  EXPECT_EQ(v.tokens[v.eos_id], "</s>");
  EXPECT_EQ(v.types[v.unknown_id], TokenType::Unknown);
  EXPECT_EQ(v.types[v.bos_id], TokenType::Control);
  EXPECT_EQ(v.tokens[3 + 10], "<0x0A>");
  EXPECT_EQ(v.types[3 + 10], TokenType::Byte);
  EXPECT_FALSE(v.add_bos);
  EXPECT_FALSE(v.add_space_prefix);
}

TEST(Tokenizer, LearnsThatLinesEnd) {
  const auto& tokens = trained().tokenizer.vocabulary().tokens;
  EXPECT_NE(std::find(tokens.begin(), tokens.end(), ".\n"), tokens.end());
}

TEST(Tokenizer, EveryByteStringComesBack) {
  PhiloxStream random(5, 0);
  for (const Tokenizer& tokenizer : {trained().tokenizer, Tokenizer::bytes()}) {
    auto texts = hard_texts();
    texts.push_back("a literal \u2581 and \u2581\u2581");
    texts.push_back("<s></s><0x41><unk>");
    for (int i = 0; i < 200; ++i) {
      std::string bytes;
      for (int n = 0; n < 40; ++n) bytes += char(random.next_below(256));
      texts.push_back(bytes);
    }
    for (const std::string& text : texts) {
      auto tokens = tokenizer.encode(text);
      EXPECT_EQ(tokenizer.decode(tokens), text);
      for (auto t : tokens) EXPECT_NE(tokenizer.vocabulary().types[t], TokenType::Control);
    }
  }
}

TEST(Tokenizer, BytesAreOneTokenEach) {
  Tokenizer tokenizer = Tokenizer::bytes();
  EXPECT_EQ(tokenizer.size(), 260);
  EXPECT_EQ(tokenizer.encode("Hé \n"), (std::vector<std::int32_t>{3 + 'H', 3 + 0xc3, 3 + 0xa9, 259, 3 + '\n'}));
}

TEST(Tokenizer, ASpacePrefixIsAddedAndTakenAway) {
  Vocabulary v = trained().tokenizer.vocabulary();
  v.add_space_prefix = true;
  Tokenizer tokenizer(v);
  EXPECT_EQ(tokenizer.encode("kato"), trained().tokenizer.encode(" kato"));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("kato")), "kato");
}

TEST(Tokenizer, PiecesThatReachOverSpacesAreMerged) {
  Vocabulary v = Tokenizer::bytes().vocabulary();
  for (auto piece : {"a", "b", "a\u2581", "a\u2581b"}) {
    v.tokens.emplace_back(piece);
    v.scores.push_back(-float(v.tokens.size()));
    v.types.push_back(TokenType::Normal);
  }
  Tokenizer tokenizer(v);
  EXPECT_EQ(tokenizer.encode("a b"), std::vector<std::int32_t>{263});
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a b a")), "a b a");
}

TEST(Tokenizer, TrainsTheSameTwice) {
  EXPECT_EQ(Tokenizer::train_bpe(trained().text, {.vocab_size = 500}).vocabulary(), trained().tokenizer.vocabulary());
}

TEST(Tokenizer, ALineOfAnyLengthIsLearnedFrom) {
  std::string line;
  for (int i = 0; i < 20000; ++i) line += "longish ";
  Tokenizer tokenizer = Tokenizer::train_bpe(line + "\nshort\n" + trained().text, {.vocab_size = 500});
  EXPECT_EQ(tokenizer.encode(" longish").size(), 1u);
}

TEST(Tokenizer, SavesAndLoads) {
  std::string path = temporary_path("tokenizer.json");
  trained().tokenizer.save(path);
  EXPECT_EQ(Tokenizer::load(path).vocabulary(), trained().tokenizer.vocabulary());
  std::filesystem::remove(path);
}

TEST(TokenizerErrors, TextThatCannotBeLearnedFrom) {
  auto train = [](std::string_view text) { return message_of<UserError>([&] { Tokenizer::train_bpe(text); }); };
  EXPECT_EQ(train(""), "[tokenizer] the text to train on is empty");
  EXPECT_NE(train(std::string_view("ab\0c", 4)).find("got binary data"), std::string::npos);
  EXPECT_NE(train("ab\xff").find("at byte 2"), std::string::npos);
  EXPECT_NE(train("too short").find("no 2048 pieces can be learned from a text of 9 bytes"), std::string::npos);
}

TEST(TokenizerErrors, VocabulariesThatDoNotFitTogether) {
  auto make = [](auto change) {
    Vocabulary v = Tokenizer::bytes().vocabulary();
    change(v);
    return message_of<UserError>([&] { Tokenizer{v}; });
  };
  EXPECT_EQ(make([](auto& v) { v.scores.pop_back(); }),
            "[tokenizer] got 260 tokens, 259 scores and 260 types, expected as many of each, 1 or more");
  EXPECT_EQ(make([](auto& v) { v.eos_id = 260; }), "[tokenizer] got special token id 260, expected one below 260");
  EXPECT_EQ(make([](auto& v) { v.tokens[3] = "<0xZZ>"; }),
            "[tokenizer] got byte token 3 \"<0xZZ>\", expected <0x00> … <0xFF>");
  EXPECT_EQ(make([](auto& v) { v.types[3] = TokenType(9); }), "[tokenizer] got type 9 for token 3, expected 1 to 6");
  Vocabulary v = Tokenizer::bytes().vocabulary();
  v.types[259] = TokenType::UserDefined;
  EXPECT_NE(message_of<Unsupported>([&] { Tokenizer{v}; }).find("user-defined tokens"), std::string::npos);
}

TEST(TokenizerErrors, FilesThatAreNot) {
  std::string path = temporary_path("bad_tokenizer.json");
  auto load = [&](std::string_view text) {
    write_file_atomic(path, text);
    return message_of<UserError>([&] { Tokenizer::load(path); });
  };
  EXPECT_NE(load("{").find(path + ": not a tokenizer file"), std::string::npos);
  EXPECT_NE(load("{}").find("not a tokenizer file"), std::string::npos);
  EXPECT_NE(load(R"({"format": "other", "version": 1})").find("not a version 1 tokenizer file"), std::string::npos);
  EXPECT_NE(message_of<UserError>([&] { (void)Tokenizer::bytes().text_of(260); }).find("token id 260"),
            std::string::npos);
  std::filesystem::remove(path);
  EXPECT_NE(message_of<Error>([&] { Tokenizer::load(path); }).find(path), std::string::npos);
}

}  // namespace
}  // namespace rlx
