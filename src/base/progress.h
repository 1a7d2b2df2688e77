// One live line on a terminal; plain lines every few seconds elsewhere.
#pragma once
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>

namespace rlx {

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  /// Writes to `out`, live where that is a terminal.
  explicit Progress(std::FILE* out = stderr);
  Progress(std::FILE* out, bool live) : out_(out), live_(live) {}
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Whether an update now would show. Ask before building a costly line.
  bool is_due() const { return is_due(Clock::now()); }
  /// Shows the line if it is due: 10 times a second live, every 5 seconds elsewhere, and the first time.
  void update(std::string_view line) { update(line, Clock::now()); }
  void update(std::string_view line, Clock::time_point now);
  /// Prints a line that stays.
  void note(std::string_view line);
  /// Ends the live line, so that what is printed next starts on its own.
  void finish();

 private:
  bool is_due(Clock::time_point now) const;

  std::FILE* out_;
  bool live_;
  bool shown_ = false;  // a live line stands on the terminal
  Clock::time_point last_ = Clock::time_point::min();
};

/// 7 s, 3:07, 1:02:03.
std::string format_duration(double seconds);

}  // namespace rlx
