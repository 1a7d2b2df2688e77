// Damaged files: whatever bytes change, a reader gives a result or a UserError (or says what is not supported).
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <random>

#include "files/bytes.h"
#include "rlx/files.h"

namespace rlx {
namespace {

using namespace test;
#include "files/files_golden.inc"

// One to four changes: a byte, a length or count of the extreme kind, a cut, a piece doubled or removed.
std::string damaged(std::string bytes, std::mt19937& random) {
  auto below = [&](std::size_t n) { return std::size_t(random() % std::max<std::size_t>(n, 1)); };
  constexpr std::uint64_t kExtremes[] = {0,          1,          0x7f,       0xff,  0xffff, 0x7fffffff,
                                         0xffffffff, 1ull << 40, 1ull << 63, ~0ull, 8,      32};
  for (auto changes = 1 + below(4); changes > 0; --changes) {
    auto at = below(bytes.size());
    switch (below(6)) {
      case 0:
      case 1:
        if (!bytes.empty()) bytes[at] = char(random());
        break;
      case 2: {
        auto v = little_endian(kExtremes[below(std::size(kExtremes))], below(2) ? 8 : 4);
        if (bytes.size() >= at + v.size()) bytes.replace(at, v.size(), v);
        break;
      }
      case 3: bytes.resize(at); break;
      case 4: bytes.insert(at, bytes.substr(at, below(40))); break;
      case 5: bytes.erase(at, below(40)); break;
    }
  }
  return bytes;
}

// A file in memory: thousands of writes to a disk would take longer than all else.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("rlx", MFD_CLOEXEC)) {}
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }
  void set(const std::string& bytes) {
    ASSERT_EQ(::ftruncate(descriptor_, 0), 0);
    ASSERT_EQ(::pwrite(descriptor_, bytes.data(), bytes.size(), 0), ssize_t(bytes.size()));
  }

 private:
  int descriptor_;
};

template <class F>
void survive(const std::string& good, int rounds, F&& read) {
  std::mt19937 random(1);
  MemoryFile file;
  file.set(good);
  EXPECT_NO_THROW(read(file.path()));
  int accepted = 0;
  for (int i = 0; i < rounds; ++i) {
    file.set(damaged(good, random));
    try {
      read(file.path());
      ++accepted;
    } catch (const UserError&) {
    } catch (const Unsupported&) {
    }
  }
  EXPECT_LT(accepted, rounds);
}

TEST(Damaged, Gguf) {
  survive(from_hex(kGguf), 8000, [](const std::string& path) {
    auto file = GgufFile::open(path);
    double sum = 0;
    for (auto& t : file.tensors()) sum += t.to_array().at(0);
    return sum;
  });
}

TEST(Damaged, Safetensors) {
  survive(from_hex(kSafetensors), 8000, [](const std::string& path) {
    auto file = load_safetensors(path);
    int sum = 0;
    for (auto& [name, a] : file.tensors)
      for (std::size_t i = 0; i < a.byte_size(); ++i) sum += int(a.bytes()[i]);
    return sum;
  });
}

TEST(Damaged, Npy) {
  TemporaryFile file;
  Array(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}).save_npy(file.path());
  survive(read_file(file.path()), 8000, [](const std::string& path) { return Array::load_npy(path).size(); });
}

// The folder of malformed files, where it is at hand.
TEST(Damaged, CaseFilesBehaveAsNamed) {
  std::filesystem::path folder(RLX_TESTS_DIR "/../../shared/cases/files");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no folder of case files";
  int seen = 0;
  for (auto& entry : std::filesystem::directory_iterator(folder)) {
    auto path = entry.path().string();
    bool is_gguf = path.ends_with(".gguf");
    if (!is_gguf && !path.ends_with(".safetensors")) continue;
    auto read = [&] { is_gguf ? void(GgufFile::open(path)) : void(load_safetensors(path)); };
    bool good = entry.path().filename().string().find("_ok_") != std::string::npos;
    EXPECT_EQ(message_of(read) == "no error", good) << path << ": " << message_of(read);
    ++seen;
  }
  EXPECT_GT(seen, 0);
}

}  // namespace
}  // namespace rlx
