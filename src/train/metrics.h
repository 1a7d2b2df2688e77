// RUN/metrics.jsonl: one JSON object a step.
#pragma once
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "train/loss_chart.h"

namespace rlx {

struct Metric {
  std::int64_t step = 0;  // steps done
  double loss = 0, learning_rate = 0;
  std::optional<double> val_bits_per_byte;  // null where it was not measured
  double tokens_per_s = 0, seconds = 0;
};

class MetricsFile {
 public:
  explicit MetricsFile(std::string path) : path_(std::move(path)) {}
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  /// An empty file.
  void start();
  /// Keeps the lines up to `step`; a line that a killed process left unfinished goes.
  void resume(std::int64_t step);
  /// Appends a line. Throws DeviceError where it cannot be written.
  void add(const Metric&);
  void flush();
  const std::vector<LossPoint>& points() const { return points_; }

 private:
  void open();
  std::string path_;
  std::FILE* file_ = nullptr;
  std::vector<LossPoint> points_;
};

}  // namespace rlx
