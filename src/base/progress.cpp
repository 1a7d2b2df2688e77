// One live line on a terminal; plain lines every few seconds elsewhere.
#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/utf8.h"

namespace rlx {
namespace {

/// The line cut to the terminal's width, so that it never wraps and can be written over.
std::string_view cut_to_width(std::string_view line, std::FILE* out) {
  winsize size{};
  std::size_t width = ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col - 1u : 119u, at = 0;
  for (std::size_t n = 0; n < width && at < line.size(); ++n) at += std::max<std::size_t>(utf8_length(line, at), 1);
  return line.substr(0, at);
}

void print(std::FILE* out, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

}  // namespace

Progress::Progress(std::FILE* out) : Progress(out, isatty(fileno(out)) != 0) {}

bool Progress::is_due(Clock::time_point now) const {
  return last_ == Clock::time_point::min() || now - last_ >= std::chrono::milliseconds(live_ ? 100 : 5000);
}

void Progress::update(std::string_view line, Clock::time_point now) {
  if (!is_due(now)) return;
  last_ = now;
  print(out_, live_ ? fmt::format("\r\x1b[K{}", cut_to_width(line, out_)) : fmt::format("{}\n", line));
  shown_ = live_;
}

void Progress::note(std::string_view line) {
  print(out_, fmt::format("{}{}\n", shown_ ? "\r\x1b[K" : "", line));
  shown_ = false;
}

void Progress::finish() {
  if (shown_) print(out_, "\n");
  shown_ = false;
}

std::string format_duration(double seconds) {
  auto s = std::llround(std::clamp(seconds, 0.0, 1e9));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

}  // namespace rlx
