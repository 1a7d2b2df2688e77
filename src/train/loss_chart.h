// The picture of a training run: RUN/loss.svg.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace rlx {

/// One line of RUN/metrics.jsonl, as far as the chart shows it.
struct LossPoint {
  std::int64_t step = 0;
  double loss = 0;                          // training, nats a token
  std::optional<double> val_bits_per_byte;  // where it was measured
};

/// An SVG document: training loss (raw and smoothed) above, validation bits per byte below where any was measured.
std::string loss_chart(std::span<const LossPoint> points, const std::string& title);

}  // namespace rlx
