// Runs the program `rlx` for tests.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace rlx::test {

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}
inline void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// A folder that goes with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "rlx-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Result {
  int status = -1;  // 128 + signal where one ended it
  std::string out, err;
};

inline std::string shell_quoted(const std::string& word) {
  std::string out = "'";
  for (char c : word) {
    if (c == '\'') out.append("'\\'");
    out.push_back(c);
  }
  out.push_back('\'');
  return out;
}
/// `before` stands before the program in the shell's line, such as `ulimit -f 100;`.
inline Result call_rlx(const std::vector<std::string>& args, const std::string& before = "",
                       const std::string& after = "") {
  TemporaryFolder folder;
  std::string line = before + " " + shell_quoted(RLX_BINARY);
  for (auto& a : args) line.append(" ").append(shell_quoted(a));
  line += after.empty() ? " >" + shell_quoted(folder / "out") : " " + after;
  line += " 2>" + shell_quoted(folder / "err") + " </dev/null";
  int status = std::system(line.c_str());
  Result result;
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = contents(folder / "out");
  result.err = contents(folder / "err");
  return result;
}

/// Starts the program in the background; what it says is added to the file `log`.
inline pid_t start_rlx(const std::vector<std::string>& args, const std::string& log) {
  pid_t pid = ::fork();
  if (pid != 0) return pid;
  std::vector<char*> argv{const_cast<char*>(RLX_BINARY)};
  for (auto& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  if (!std::freopen(log.c_str(), "a", stdout) || !std::freopen(log.c_str(), "a", stderr)) ::_exit(126);
  ::execv(RLX_BINARY, argv.data());
  ::_exit(127);
}
inline int wait_for(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Fails with one line `rlx: error: …` that has `part`, and exits with `status`.
inline void expect_error(const Result& r, const std::string& part, int status = 1) {
  EXPECT_EQ(r.status, status) << r.err;
  std::size_t at = r.err.find("rlx: error: ");
  ASSERT_NE(at, std::string::npos) << r.err;
  EXPECT_NE(r.err.find(part, at), std::string::npos) << "expected \"" << part << "\" in: " << r.err;
  EXPECT_EQ(r.err.find('\n', at), r.err.size() - 1) << "more than one line: " << r.err;
  EXPECT_EQ(r.err.find("rlx: error: ", at + 1), std::string::npos) << r.err;
}

/// A few kilobytes of words, the same every time.
inline std::string some_text(int lines = 400) {
  static const char* const kWords[] = {"in",  "the",   "beginning", "was",   "a",    "small", "river",
                                       "and", "it",    "ran",       "to",    "sea",  "over",  "stones",
                                       "of",  "every", "kind",      "until", "rain", "came"};
  std::string out;
  unsigned state = 1;
  for (int i = 0; i < lines; ++i) {
    for (int w = 0; w < 7; ++w) {
      state = state * 1664525u + 1013904223u;
      out += kWords[(state >> 20) % 20];
      out += w == 6 ? ".\n" : " ";
    }
  }
  return out;
}
/// A model that trains in no time, on bytes.
inline std::string tiny_config(const std::string& more = "") {
  return R"({"tokenizer": "bytes", "context_length": 16, "embedding_length": 16, "block_count": 2, "feed_forward_length": 32,
    "head_count": 2, "head_count_kv": 1, "batch_size": 2, "warmup_steps": 1)" +
         (more.empty() ? "" : ", " + more) + "}";
}

}  // namespace rlx::test
