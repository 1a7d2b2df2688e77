// The picture of a training run.
#include "train/loss_chart.h"

#include <algorithm>
#include <cmath>

#include "base/svg_chart.h"

namespace rlx {
namespace {

/// The mean of a window around each point, about a fiftieth of the run wide and narrower at the ends.
std::vector<double> smoothed(const std::vector<double>& values) {
  std::vector<double> sums{0}, counts{0};
  for (double v : values) {
    sums.push_back(sums.back() + (std::isfinite(v) ? v : 0));
    counts.push_back(counts.back() + std::isfinite(v));
  }
  std::vector<double> out;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::size_t half = std::min({values.size() / 100, i, values.size() - 1 - i}), begin = i - half, end = i + half + 1;
    out.push_back((sums[end] - sums[begin]) / (counts[end] - counts[begin]));
  }
  return out;
}

}  // namespace

std::string loss_chart(std::span<const LossPoint> points, const std::string& title) {
  ChartSeries raw{.label = "each step", .color = "#2b6cb0", .x = {}, .y = {}, .faint = true};
  ChartSeries validation{.label = "validation", .color = "#c05621", .x = {}, .y = {}, .markers = true};
  for (const LossPoint& p : points) {
    raw.x.push_back(double(p.step));
    raw.y.push_back(p.loss);
    if (!p.val_bits_per_byte) continue;
    validation.x.push_back(double(p.step));
    validation.y.push_back(*p.val_bits_per_byte);
  }
  ChartSeries mean{.label = "mean", .color = raw.color, .x = raw.x, .y = smoothed(raw.y)};
  Chart chart{.title = title, .x_label = "step", .panels = {{"training loss (nats per token)", {raw, mean}}}};
  if (!validation.x.empty()) chart.panels.push_back({"validation (bits per byte)", {validation}});
  return to_svg(chart);
}

}  // namespace rlx
