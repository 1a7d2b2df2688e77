// Training data: checking and splitting text, the token files of a run, batches by seed.
#include "train/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/file.h"
#include "base/philox.h"
#include "base/utf8.h"

namespace rlx {
namespace {

constexpr std::uint64_t kDataStream = 0x64617461;  // "data": apart from the streams that initialise weights

Array to_array(const std::vector<std::int32_t>& tokens, std::int32_t vocab_size) {
  Array array(tokens, {std::int64_t(tokens.size())});
  return vocab_size <= 65536 ? array.cast(DType::U16) : array;
}

std::vector<std::int32_t> load_tokens(const std::string& path, std::int32_t vocab_size) {
  Array array = Array::load_npy(path);
  if (array.shape().size() != 1 || (array.dtype() != DType::U16 && array.dtype() != DType::I32))
    throw UserError(
        fmt::format("[data] {}: got {}, expected a list of u16 or i32 tokens", path, to_string(array.type())));
  auto tokens = array.to_vector<std::int32_t>();
  for (std::int32_t token : tokens)
    if (token < 0 || token >= vocab_size)
      throw UserError(fmt::format("[data] {}: got token {}, expected one below {}", path, token, vocab_size));
  return tokens;
}

}  // namespace

std::string read_text(const std::string& path) {
  std::string text = read_file(path);
  if (text.empty()) throw UserError(fmt::format("[data] {}: the file is empty, expected text", path));
  if (std::size_t at = text.find('\0'); at != std::string::npos)
    throw UserError(fmt::format("[data] {}: got binary data (a NUL byte at offset {}), expected text", path, at));
  if (std::size_t at = find_invalid_utf8(text); at != std::string::npos)
    throw UserError(fmt::format("[data] {}: got byte 0x{:02x} at offset {}, expected UTF-8 text", path,
                                static_cast<unsigned char>(text[at]), at));
  return text;
}

std::size_t split_text(std::string_view text, double validation_fraction) {
  if (!(validation_fraction > 0 && validation_fraction < 1))
    throw UserError(
        fmt::format("[data] got validation fraction {}, expected one between 0 and 1", validation_fraction));
  // As whole bytes and with a little room, so that 0.03 of a text is not a byte short of it.
  auto limit = std::min<std::size_t>(std::size_t(double(text.size()) * validation_fraction + 1e-6), text.size());
  std::size_t target = text.size() - limit, at = target;
  bool is_line_start = target > 0 && text[target - 1] == '\n';
  if (!is_line_start) {
    std::size_t end = text.find('\n', target);
    if (end == std::string_view::npos || end + 1 == text.size())
      end =
          target == 0 || text.size() < 2 ? std::string_view::npos : text.rfind('\n', std::min(target, text.size() - 2));
    if (end != std::string_view::npos)
      at = end + 1;
    else
      while (at > 0 && at < text.size() && (text[at] & 0xc0) == 0x80) --at;
  }
  if (at == 0 || at >= text.size())
    throw UserError(
        fmt::format("[data] a text of {} bytes cannot be split: {} of it for validation leaves one part empty",
                    text.size(), validation_fraction));
  return at;
}

TextData prepare_data(const std::string& path, const DataOptions& options, const std::string& folder) {
  if (options.tokenizer != "bpe" && options.tokenizer != "bytes")
    throw UserError(fmt::format("[data] got tokenizer \"{}\", expected \"bpe\" or \"bytes\"", options.tokenizer));
  std::string text = read_text(path);
  std::size_t split = split_text(text, options.validation_fraction);
  std::string_view train = std::string_view(text).substr(0, split), validation = std::string_view(text).substr(split);

  TextData data{.tokenizer = options.tokenizer == "bpe"
                                 ? Tokenizer::train_bpe(train, {.vocab_size = options.vocab_size})
                                 : Tokenizer::bytes(),
                .train = {},
                .validation = {},
                .train_bytes = std::int64_t(train.size()),
                .validation_bytes = std::int64_t(validation.size())};
  data.train = data.tokenizer.encode(train);
  data.validation = data.tokenizer.encode(validation);

  data.tokenizer.save(folder + "/tokenizer.json");
  to_array(data.train, data.tokenizer.size()).save_npy(folder + "/train_tokens.npy");
  to_array(data.validation, data.tokenizer.size()).save_npy(folder + "/validation_tokens.npy");
  nlohmann::ordered_json split_file = {{"file", path},
                                       {"train_bytes", data.train_bytes},
                                       {"validation_bytes", data.validation_bytes},
                                       {"train_tokens", data.train.size()},
                                       {"validation_tokens", data.validation.size()}};
  write_file_atomic(folder + "/data.json", split_file.dump(2) + "\n");
  return data;
}

TextData load_data(const std::string& folder) {
  TextData data{.tokenizer = Tokenizer::load(folder + "/tokenizer.json"), .train = {}, .validation = {}};
  data.train = load_tokens(folder + "/train_tokens.npy", data.tokenizer.size());
  data.validation = load_tokens(folder + "/validation_tokens.npy", data.tokenizer.size());
  std::string path = folder + "/data.json";
  try {
    auto file = nlohmann::json::parse(read_file(path));
    data.train_bytes = file.at("train_bytes");
    data.validation_bytes = file.at("validation_bytes");
    if (file.at("train_tokens") != data.train.size() || file.at("validation_tokens") != data.validation.size())
      throw UserError(fmt::format("[data] {}: got {} and {} tokens in the files beside it, expected {} and {}", path,
                                  data.train.size(), data.validation.size(), file.at("train_tokens").dump(),
                                  file.at("validation_tokens").dump()));
  } catch (const nlohmann::json::exception& error) {
    throw UserError(fmt::format("[data] {}: not a data file: {}", path, error.what()));
  }
  return data;
}

// ---------------------------------------------------------------------------------------------- batches

BatchSampler::BatchSampler(std::span<const std::int32_t> tokens, std::int64_t length, std::uint64_t seed)
    : tokens_(tokens), length_(length), seed_(seed) {
  auto count = std::int64_t(tokens.size());
  if (length < 1) throw UserError(fmt::format("[data] got sequence length {}, expected 1 or more", length));
  if (count < length + 1)
    throw UserError(fmt::format("[data] got {} tokens, expected {} or more for a sequence length of {}", count,
                                length + 1, length));
  windows_ = std::max<std::int64_t>(1, (count - length) / length);
}

std::int64_t BatchSampler::start_of(std::int64_t index) {
  if (index < 0) throw UserError(fmt::format("[data] got window {}, expected 0 or more", index));
  if (std::int64_t epoch = index / windows_; epoch != epoch_) {
    PhiloxStream random(seed_, kDataStream + (std::uint64_t(epoch) << 32));
    std::int64_t room = std::int64_t(tokens_.size()) - 1 - windows_ * length_;
    offset_ = std::int64_t(random.next_below(std::uint64_t(std::min(room, length_ - 1)) + 1));
    order_.resize(windows_);
    std::iota(order_.begin(), order_.end(), 0);
    for (std::int64_t i = windows_ - 1; i > 0; --i)
      std::swap(order_[i], order_[random.next_below(std::uint64_t(i) + 1)]);
    epoch_ = epoch;
  }
  return offset_ + order_[index % windows_] * length_;
}

Array BatchSampler::batch(std::int64_t index, std::int64_t size) {
  Array out(DType::I32, {size, length_ + 1});
  auto values = out.values<std::int32_t>();
  for (std::int64_t row = 0; row < size; ++row)
    std::copy_n(tokens_.begin() + start_of(index * size + row), length_ + 1, values.begin() + row * (length_ + 1));
  return out;
}

}  // namespace rlx
