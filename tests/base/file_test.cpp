// Files: reading, mapping, and writes that leave nothing half done.
#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "message_of.h"
#include "rlx/base.h"

namespace rlx {
namespace {

namespace fs = std::filesystem;

class File : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("rlx-file-test-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  int files() const { return int(std::distance(fs::directory_iterator(folder_), fs::directory_iterator())); }
  fs::path folder_;
};

TEST_F(File, RoundTrips) {
  std::string big(3 << 20, 'x');
  big[12345] = 'y';
  write_file_atomic(path("a"), [&](FileWriter& f) {
    f.write("12345");
    f.pad(8);
    EXPECT_EQ(f.position(), 8u);
    f.write(big);
    f.write_number(std::uint32_t(0x04030201));
  });
  auto want = std::string("12345\0\0\0", 8) + big + "\1\2\3\4";
  EXPECT_EQ(read_file(path("a")), want);
  auto map = MappedFile::open(path("a"));
  EXPECT_EQ(std::string(reinterpret_cast<char*>(map->bytes().data()), map->bytes().size()), want);
  map->bytes()[0] = std::byte('9');
  EXPECT_EQ(read_file(path("a")), want);  // the map is private
  write_file_atomic(path("a"), "");
  EXPECT_EQ(MappedFile::open(path("a"))->bytes().size(), 0u);
  EXPECT_EQ(files(), 1);
}

TEST_F(File, AFailedWriteLeavesTheOldFileAndNothingElse) {
  write_file_atomic(path("a"), "old");
  EXPECT_THROW(write_file_atomic(path("a"),
                                 [](FileWriter& f) {
                                   f.write("new");
                                   throw UserError("stop");
                                 }),
               UserError);
  EXPECT_EQ(read_file(path("a")), "old");
  EXPECT_EQ(files(), 1);
}

TEST_F(File, AFullDiskIsOneErrorAndLeavesNothing) {
  write_file_atomic(path("a"), "old");
  // A limit on the file size fails a write as a full disk does.
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small{100000, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  auto message = message_of<DeviceError>([&] { write_file_atomic(path("a"), std::string(1 << 20, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(message, "cannot write '" + path("a") + "': File too large");
  EXPECT_EQ(read_file(path("a")), "old");
  EXPECT_EQ(files(), 1);
}

TEST_F(File, ErrorsNameThePathAndTheReason) {
  EXPECT_EQ(message_of<DeviceError>([&] { read_file(path("no")); }),
            "cannot open '" + path("no") + "': No such file or directory");
  EXPECT_EQ(message_of<DeviceError>([&] { MappedFile::open(folder_.string()); }),
            "cannot read '" + folder_.string() + "': Is a directory");
  EXPECT_EQ(message_of<DeviceError>([&] { write_file_atomic(path("no/a"), "x"); }),
            "cannot write '" + path("no/a") + "': No such file or directory");
  EXPECT_EQ(message_of<UserError>([&] { write_file_atomic(folder_.string(), "x"); }),
            "cannot write '" + folder_.string() + "': it is a folder");
  EXPECT_EQ(message_of<UserError>([&] { write_file_atomic("/dev/null", "x"); }),
            "cannot write '/dev/null': it is no regular file");
  EXPECT_THROW(write_file_atomic("", "x"), UserError);
  write_file_atomic(path("a"), "12345");
  EXPECT_EQ(message_of<UserError>([&] { read_file(path("a"), 4); }),
            "'" + path("a") + "' has 5 bytes, expected at most 4");
  ::mkfifo(path("pipe").c_str(), 0600);
  EXPECT_THROW(read_file(path("pipe")), DeviceError);
}

TEST_F(File, FollowsLinks) {
  write_file_atomic(path("real"), "old");
  fs::create_symlink(path("real"), path("link"));
  write_file_atomic(path("link"), "new");
  EXPECT_EQ(read_file(path("real")), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
}

}  // namespace
}  // namespace rlx
