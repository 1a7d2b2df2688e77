#include "train/score.h"

#include <algorithm>
#include <cmath>

namespace rlx {
namespace {

constexpr std::int64_t kBatch = 8;

// One window: tokens [start, start + length], of whose predictions the last `count` are new.
struct Window {
  std::int64_t start, count;
};

std::vector<Window> overlapping_windows(std::int64_t tokens, std::int64_t length) {
  std::vector<Window> out{{0, length}};
  std::int64_t stride = std::max<std::int64_t>(1, length / 2);
  for (std::int64_t done = length; done < tokens - 1;) {  // predictions 0 … tokens - 2
    std::int64_t end = std::min(done + stride, tokens - 1);
    out.push_back({end - length, end - done});
    done = end;
  }
  return out;
}

}  // namespace

Scorer::Scorer(const ModelConfig& config, Device device)
    : vocab_size_(config.vocab_size), graph_(Session(device).compile(score_graph(config), {.name = "score"})) {}

void Scorer::set_params(const Tensors& params) {
  for (auto& [name, value] : params) graph_.set_param(name, value);
}

double Scorer::nats(std::span<const std::int32_t> tokens, std::int64_t window) {
  auto n = std::int64_t(tokens.size());
  if (n == 0) throw UserError("[score] there are no tokens to score");
  double total = std::log(double(vocab_size_));
  if (n == 1) return total;
  std::int64_t length = std::min(window, n - 1);
  auto windows = overlapping_windows(n, length);
  std::int64_t batch = std::min(kBatch, std::int64_t(windows.size()));
  for (std::size_t first = 0; first < windows.size(); first += std::size_t(batch)) {
    Array rows(DType::I32, {batch, length + 1});
    auto to = rows.values<std::int32_t>();
    for (std::int64_t r = 0; r < batch; ++r) {  // the last batch is filled up with its last row: one shape for all
      auto& w = windows[std::min(first + std::size_t(r), windows.size() - 1)];
      std::copy_n(tokens.begin() + w.start, length + 1, to.begin() + r * (length + 1));
    }
    Array losses = graph_.run({{"tokens", rows}})[0];
    auto loss = losses.values<float>();
    for (std::int64_t r = 0; r < batch && first + std::size_t(r) < windows.size(); ++r) {
      std::int64_t count = windows[first + std::size_t(r)].count;
      for (std::int64_t i = length - count; i < length; ++i) total += double(loss[std::size_t(r * length + i)]);
    }
  }
  return total;
}

}  // namespace rlx
