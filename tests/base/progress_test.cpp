// The progress line, on a terminal and elsewhere.
#include "base/progress.h"

#include <gtest/gtest.h>

#include <functional>

namespace rlx {
namespace {

using namespace std::chrono_literals;

std::string written(bool live, const std::function<void(Progress&)>& use) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file, live);
    use(progress);
  }
  std::string text(std::size_t(std::ftell(file)), '\0');
  std::rewind(file);
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
  std::fclose(file);
  return text;
}

void five_updates(Progress& progress) {
  auto start = Progress::Clock::now();
  progress.update("one", start);
  progress.update("two", start + 50ms);
  progress.update("three", start + 200ms);
  progress.note("kept");
  progress.update("four", start + 5001ms);
}

TEST(Progress, LiveLinesReplaceEachOther) {
  EXPECT_EQ(written(true, five_updates), "\r\x1b[Kone\r\x1b[Kthree\r\x1b[Kkept\n\r\x1b[Kfour\n");
}

TEST(Progress, PlainLinesEveryFewSeconds) { EXPECT_EQ(written(false, five_updates), "one\nkept\nfour\n"); }

TEST(Progress, LiveLinesNeverWrap) {
  std::string text = written(true, [](Progress& progress) { progress.update(std::string(300, 'x')); });
  EXPECT_LT(text.size(), 130u);
}

TEST(Progress, AFileIsNoTerminal) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file);
    progress.update("line");
  }
  EXPECT_EQ(std::ftell(file), 5);
  std::fclose(file);
}

TEST(Progress, Durations) {
  EXPECT_EQ(format_duration(0), "0 s");
  EXPECT_EQ(format_duration(59.4), "59 s");
  EXPECT_EQ(format_duration(187), "3:07");
  EXPECT_EQ(format_duration(3723), "1:02:03");
  EXPECT_EQ(format_duration(-1), "0 s");
}

}  // namespace
}  // namespace rlx
