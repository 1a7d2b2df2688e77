#include "train/metrics.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"
#include "rlx/base.h"

namespace rlx {
namespace {
using Json = nlohmann::ordered_json;
}

MetricsFile::~MetricsFile() {
  if (file_) std::fclose(file_);
}

void MetricsFile::open() {
  file_ = std::fopen(path_.c_str(), "ae");
  if (!file_) throw DeviceError(fmt::format("cannot write '{}': {}", path_, std::strerror(errno)));
}

void MetricsFile::start() {
  write_file_atomic(path_, "");
  open();
}

void MetricsFile::resume(std::int64_t step) {
  std::string kept;
  if (std::filesystem::exists(path_)) {
    std::istringstream lines(read_file(path_));
    for (std::string line; std::getline(lines, line);) {
      Json metric = Json::parse(line, nullptr, false);
      if (!metric.is_object() || !metric.contains("step") || !metric["step"].is_number_integer() ||
          metric["step"] > step)
        break;
      LossPoint point{.step = metric["step"], .loss = metric.value("loss", 0.0), .val_bits_per_byte = {}};
      if (auto bits = metric.find("val_bits_per_byte"); bits != metric.end() && bits->is_number())
        point.val_bits_per_byte = *bits;
      points_.push_back(point);
      kept += line + "\n";
    }
  }
  write_file_atomic(path_, kept);
  open();
}

void MetricsFile::add(const Metric& m) {
  Json line = {{"step", m.step},
               {"loss", m.loss},
               {"learning_rate", m.learning_rate},
               {"val_bits_per_byte", m.val_bits_per_byte ? Json(*m.val_bits_per_byte) : Json()},
               {"tokens_per_s", m.tokens_per_s},
               {"seconds", m.seconds}};
  std::string text = line.dump() + "\n";
  points_.push_back({m.step, m.loss, m.val_bits_per_byte});
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() ||
      (m.val_bits_per_byte && std::fflush(file_) != 0))
    throw DeviceError(fmt::format("cannot write '{}': {}", path_, std::strerror(errno)));
}

void MetricsFile::flush() {
  if (std::fflush(file_) != 0) throw DeviceError(fmt::format("cannot write '{}': {}", path_, std::strerror(errno)));
}

}  // namespace rlx
