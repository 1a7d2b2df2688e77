// Training data: what is refused, where the split falls, what the batches cover.
#include "train/data.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <set>

#include "base/file.h"
#include "temporary.h"

namespace rlx {
namespace {

class DataFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = temporary_path(testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string file(std::string_view text) const {
    write_file_atomic(folder_ + "/text.txt", text);
    return folder_ + "/text.txt";
  }
  std::string refusal(const std::string& path) const {
    try {
      read_text(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }
  std::string folder_;
};

TEST_F(DataFiles, TextIsCheckedAndNamed) {
  std::string path = file("fine\n");
  EXPECT_EQ(read_text(path), "fine\n");
  EXPECT_EQ(refusal(file("")), "[data] " + path + ": the file is empty, expected text");
  EXPECT_EQ(refusal(file(std::string_view("abc\0d", 5))),
            "[data] " + path + ": got binary data (a NUL byte at offset 3), expected text");
  EXPECT_EQ(refusal(file("abcd\xff")), "[data] " + path + ": got byte 0xff at offset 4, expected UTF-8 text");
  EXPECT_NE(refusal(folder_ + "/none.txt").find(folder_ + "/none.txt"), std::string::npos);
  EXPECT_NE(refusal(folder_).find(folder_), std::string::npos);
}

TEST(SplitText, FallsOnALineStart) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "line 012\n";  // 9 bytes
  EXPECT_EQ(split_text(text, 0.03), 97u * 9);
  EXPECT_EQ(split_text(text, 0.035), 97u * 9);  // a smaller part rather than a larger one
  EXPECT_EQ(split_text(text, 0.0399), 97u * 9);
  EXPECT_EQ(split_text(text, 0.04), 96u * 9);
}

TEST(SplitText, LongLastLinesAndTextWithoutLines) {
  EXPECT_EQ(split_text("first\nsecond and last line\n", 0.1), 6u);
  EXPECT_EQ(split_text("first\nsecond and last line", 0.1), 6u);
  EXPECT_EQ(split_text("0123456789", 0.2), 8u);
  EXPECT_EQ(split_text("01234567\u00e9", 0.1), 8u);
}

TEST(SplitText, NeitherPartIsEmpty) {
  EXPECT_THROW(split_text("x", 0.5), UserError);
  EXPECT_THROW(split_text("a text", 0), UserError);
  EXPECT_THROW(split_text("a text", 1), UserError);
  EXPECT_THROW(split_text("a text", -0.1), UserError);
  EXPECT_THROW(split_text("a text", std::numeric_limits<double>::quiet_NaN()), UserError);
}

TEST_F(DataFiles, PreparedDataIsKept) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "the quick brown fox number " + std::to_string(i) + " jumps\n";
  for (const char* kind : {"bpe", "bytes"}) {
    TextData data = prepare_data(file(text), {.tokenizer = kind, .vocab_size = 300}, folder_);
    EXPECT_EQ(data.train_bytes, std::int64_t(split_text(text, 0.03)));
    EXPECT_EQ(data.train_bytes + data.validation_bytes, std::int64_t(text.size()));
    EXPECT_EQ(data.tokenizer.decode(data.train) + data.tokenizer.decode(data.validation), text);

    std::filesystem::remove(folder_ + "/text.txt");
    TextData again = load_data(folder_);
    EXPECT_EQ(again.tokenizer.vocabulary(), data.tokenizer.vocabulary());
    EXPECT_EQ(again.train, data.train);
    EXPECT_EQ(again.validation, data.validation);
    EXPECT_EQ(again.train_bytes, data.train_bytes);
    EXPECT_EQ(again.validation_bytes, data.validation_bytes);
  }
}

TEST_F(DataFiles, TheTokenizerSeesTheTrainingPartOnly) {
  std::string common;
  for (int i = 0; i < 500; ++i) common += "the quick brown fox jumps over line " + std::to_string(i) + "\n";
  auto vocabulary = [&](const std::string& end) {
    return prepare_data(file(common + end), {.vocab_size = 300}, folder_).tokenizer.vocabulary();
  };
  EXPECT_EQ(vocabulary("zebra zebra zebra zebra zebra zebra zebra zebra\n"),
            vocabulary("dragon dragon dragon dragon dragon dragon dragon\n"));
}

TEST_F(DataFiles, BrokenTokenFilesAreNamed) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "some words of text\n";
  auto prepare = [&] { prepare_data(file(text), {.tokenizer = "bytes"}, folder_); };
  auto message = [&] {
    try {
      load_data(folder_);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  prepare();
  Array(std::vector<std::int32_t>{1, 260}, {2}).save_npy(folder_ + "/train_tokens.npy");
  EXPECT_NE(message().find("train_tokens.npy: got token 260, expected one below 260"), std::string::npos);
  Array(std::vector<float>{1, 2}, {2}).save_npy(folder_ + "/train_tokens.npy");
  EXPECT_NE(message().find("expected a list of u16 or i32 tokens"), std::string::npos);
  Array(std::vector<std::int32_t>{1, 2}, {2}).save_npy(folder_ + "/train_tokens.npy");
  EXPECT_NE(message().find("tokens in the files beside it"), std::string::npos);
  prepare();
  write_file_atomic(folder_ + "/data.json", "{");
  EXPECT_NE(message().find("data.json: not a data file"), std::string::npos);
  EXPECT_THROW(prepare_data(folder_ + "/text.txt", {.tokenizer = "words"}, folder_), UserError);
}

// ---------------------------------------------------------------------------------------------- batches

std::vector<std::int32_t> count_up(int n) {
  std::vector<std::int32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TEST(BatchSampler, RowsAreWindowsOfTheText) {
  auto tokens = count_up(1000);
  BatchSampler sampler(tokens, 16, 7);
  Array batch = sampler.batch(3, 4);
  EXPECT_EQ(batch.dtype(), DType::I32);
  EXPECT_EQ(batch.shape(), (Extents{4, 17}));
  auto values = batch.values<std::int32_t>();
  for (int row = 0; row < 4; ++row) {
    EXPECT_EQ(values[row * 17], sampler.start_of(3 * 4 + row));
    for (int i = 1; i < 17; ++i) EXPECT_EQ(values[row * 17 + i], values[row * 17] + i);
  }
}

TEST(BatchSampler, IsAPureFunctionOfSeedAndIndex) {
  auto tokens = count_up(1000);
  BatchSampler forward(tokens, 16, 7), jump(tokens, 16, 7), other(tokens, 16, 8);
  std::vector<Array> batches;
  for (int i = 0; i < 100; ++i) batches.push_back(forward.batch(i, 4));
  for (int i : {99, 0, 57, 14, 15, 16}) EXPECT_TRUE(identical(jump.batch(i, 4), batches[i])) << i;
  EXPECT_FALSE(identical(other.batch(0, 4), batches[0]));
}

TEST(BatchSampler, AnEpochCoversTheTextOnce) {
  auto tokens = count_up(1003);
  BatchSampler sampler(tokens, 10, 1);
  EXPECT_EQ(sampler.windows_per_epoch(), 99);
  std::set<std::int64_t> offsets;
  for (int epoch = 0; epoch < 20; ++epoch) {
    std::set<std::int64_t> starts;
    for (int i = 0; i < 99; ++i) starts.insert(sampler.start_of(epoch * 99 + i));
    ASSERT_EQ(starts.size(), 99u);
    EXPECT_EQ(*starts.rbegin() - *starts.begin(), 98 * 10);  // side by side
    EXPECT_GE(*starts.begin(), 0);
    EXPECT_LE(*starts.rbegin() + 10, 1002);
    offsets.insert(*starts.begin());
  }
  EXPECT_GE(offsets.size(), 5u);
}

TEST(BatchSampler, SmallTexts) {
  for (int n : {11, 12, 19, 20, 21}) {
    auto tokens = count_up(n);
    BatchSampler sampler(tokens, 10, 1);
    for (int i = 0; i < 50; ++i) {
      EXPECT_GE(sampler.start_of(i), 0);
      EXPECT_LE(sampler.start_of(i) + 11, n);
    }
  }
  auto tokens = count_up(10);
  EXPECT_THROW(BatchSampler(tokens, 10, 1), UserError);
  EXPECT_THROW(BatchSampler(tokens, 0, 1), UserError);
}

}  // namespace
}  // namespace rlx
