#include "train/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/utf8.h"

namespace rlx {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

CompiledGraph compile_decoder(const ModelConfig& config, Device device, std::int64_t capacity) {
  DecodeGraph decode = decode_graph(config, capacity);
  return Session(device).compile(decode.graph, {.name = "decode", .updates = decode.updates});
}

}  // namespace

Decoder::Decoder(const ModelConfig& config, const Tensors& params, Device device, std::int64_t capacity)
    : capacity_(capacity), graph_(compile_decoder(config, device, capacity)) {
  for (auto& [name, value] : params) graph_.set_param(name, value);
  Array empty(DType::F32, {1, config.head_count_kv, capacity, config.head_length()});
  for (std::int64_t n = 0; n < config.block_count; ++n) {
    graph_.set_param(fmt::format("cache_k.{}", n), empty);
    graph_.set_param(fmt::format("cache_v.{}", n), empty);
  }
}

Array Decoder::read(std::int32_t token) {
  if (position_ >= capacity_) throw UserError(fmt::format("[decode] the cache of {} tokens is full", capacity_));
  Array logits = graph_.run_read_outputs({{"token", Array(std::vector<std::int32_t>{token}, {1})},
                                          {"position", Array(std::vector<std::int32_t>{std::int32_t(position_)}, {1})}},
                                         {0})[0];
  ++position_;
  return logits;
}

void check_generate_options(const GenerateOptions& o) {
  auto expect = [](bool good, const char* what, double value, const char* expected) {
    if (!good) throw UserError(fmt::format("[generate] got {} {}, expected {}", what, value, expected));
  };
  expect(o.tokens >= 0, "a number of tokens of", double(o.tokens), "0 or more");
  expect(o.temperature >= 0 && std::isfinite(o.temperature), "temperature", o.temperature, "0 or more");
  expect(o.top_k >= 0, "top-k", double(o.top_k), "0 or more");
  expect(o.top_p > 0 && o.top_p <= 1, "top-p", o.top_p, "a number above 0, at most 1");
}

std::int32_t sample_token(std::span<const float> logits, const GenerateOptions& o, PhiloxStream& random) {
  double u = double(random.next_uniform());
  for (float v : logits)
    if (std::isnan(v)) throw UserError("[generate] the model's logits are not numbers");
  if (o.temperature == 0) return std::int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::size_t keep = o.top_k && std::size_t(o.top_k) < ids.size() ? std::size_t(o.top_k) : ids.size();
  auto likelier = [&](std::int32_t a, std::int32_t b) {
    float x = logits[std::size_t(a)], y = logits[std::size_t(b)];
    return x > y || (x == y && a < b);
  };
  std::partial_sort(ids.begin(), ids.begin() + std::ptrdiff_t(keep), ids.end(), likelier);
  ids.resize(keep);
  std::vector<double> mass;
  double top = logits[std::size_t(ids[0])], total = 0;
  for (auto id : ids)
    mass.push_back(std::exp((double(logits[std::size_t(id)]) - top) / o.temperature)), total += mass.back();
  std::size_t count = 0;
  double kept = 0;
  while (count < mass.size() && (count == 0 || kept < o.top_p * total)) kept += mass[count++];
  double at = u * kept;
  for (std::size_t i = 0; i < count; ++i)
    if ((at -= mass[i]) < 0) return ids[i];
  return ids[count - 1];
}

std::string Utf8Joiner::add(std::string_view bytes) {
  rest_ += bytes;
  std::string out;
  std::size_t at = 0;
  while (at < rest_.size()) {
    if (std::size_t n = utf8_length(rest_, at)) {
      out += rest_.substr(at, n), at += n;
      continue;
    }
    // The start of a character whose end may come yet: the lead says how long it is.
    auto lead = static_cast<unsigned char>(rest_[at]);
    std::size_t wanted = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 1, have = rest_.size() - at;
    bool open = lead < 0xf5 && have < wanted;
    for (std::size_t i = 1; i < have && open; ++i) open = (static_cast<unsigned char>(rest_[at + i]) & 0xc0) == 0x80;
    if (open) break;
    out += kReplacement, ++at;
  }
  rest_.erase(0, at);
  return out;
}

std::string Utf8Joiner::finish() { return std::exchange(rest_, "").empty() ? "" : std::string(kReplacement); }

}  // namespace rlx
