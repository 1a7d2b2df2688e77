#include "base/file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "rlx/base.h"

namespace rlx {
namespace {

static_assert(std::endian::native == std::endian::little, "the file formats are written as the machine holds numbers");

constexpr std::size_t kBuffer = 1 << 18;

[[noreturn]] void fail(std::string_view verb, const std::string& path, int error) {
  throw DeviceError(fmt::format("cannot {} '{}': {}", verb, path, std::strerror(error)));
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

// Opens a regular file for reading and tells its size.
int open_regular(const std::string& path, std::uint64_t& size) {
  // Not blocking, so that a pipe without a writer is refused below and not waited for.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) fail("open", path, errno);
  struct stat info;
  if (::fstat(file.get(), &info) != 0) fail("read", path, errno);
  if (S_ISDIR(info.st_mode)) fail("read", path, EISDIR);
  if (!S_ISREG(info.st_mode)) throw DeviceError(fmt::format("cannot read '{}': it is no regular file", path));
  size = std::uint64_t(info.st_size);
  return file.release();
}

// The file that a write to `path` replaces: links are followed, and devices, folders and pipes refused.
std::string write_target(const std::string& path) {
  struct stat info;
  if (path.empty()) throw UserError("cannot write a file: the path is empty");
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    throw UserError(
        fmt::format("cannot write '{}': it is {}", path, S_ISDIR(info.st_mode) ? "a folder" : "no regular file"));
  std::error_code error;
  if (std::filesystem::is_symlink(path, error)) {
    auto target = std::filesystem::weakly_canonical(path, error);
    if (!error) return target.string();
  }
  return path;
}

void sync_folder(const std::string& path) {
  auto folder = std::filesystem::path(path).parent_path();
  Descriptor d(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (d.get() >= 0) ::fsync(d.get());  // some file systems cannot; the rename stands all the same
}

}  // namespace

std::string read_file(const std::string& path, std::uint64_t max_bytes) {
  std::uint64_t size = 0;
  Descriptor file(open_regular(path, size));
  if (size > max_bytes) throw UserError(fmt::format("'{}' has {} bytes, expected at most {}", path, size, max_bytes));
  std::string out(size, '\0');
  std::size_t done = 0;
  while (done < out.size()) {
    auto n = ::read(file.get(), out.data() + done, out.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("read", path, errno);
    if (n == 0) break;
    done += std::size_t(n);
  }
  out.resize(done);
  return out;
}

std::shared_ptr<MappedFile> MappedFile::open(const std::string& path) {
  std::uint64_t size = 0;
  Descriptor file(open_regular(path, size));
  std::shared_ptr<MappedFile> out(new MappedFile);
  out->path_ = path;
  if (size == 0) return out;
  void* p = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
  if (p == MAP_FAILED) fail("map", path, errno);
  out->data_ = static_cast<std::byte*>(p);
  out->size_ = size;
  return out;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(data_, size_);
}

void FileWriter::write(const void* bytes, std::size_t size) {
  if (size == 0) return;
  position_ += size;
  if (buffer_.size() + size > kBuffer) flush();
  auto p = static_cast<const char*>(bytes);
  if (size >= kBuffer) {
    write_through(p, size);
  } else {
    buffer_.append(p, size);
  }
}

void FileWriter::pad(std::uint64_t alignment) {
  auto rest = position_ % alignment;
  if (rest) write(std::string(alignment - rest, '\0'));
}

void FileWriter::flush() {
  write_through(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void FileWriter::write_through(const char* bytes, std::size_t size) {
  while (size > 0) {
    auto n = ::write(descriptor_, bytes, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write", path_, errno);
    bytes += n;
    size -= std::size_t(n);
  }
}

void write_file_atomic(const std::string& path, const std::function<void(FileWriter&)>& fill) {
  static std::atomic<unsigned> counter{0};
  auto target = write_target(path);
  auto temporary = fmt::format("{}.tmp-{}-{}", target, ::getpid(), counter++);
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0) fail("write", path, errno);
  try {
    FileWriter writer(file.get(), path);
    fill(writer);
    writer.flush();
    if (::fsync(file.get()) != 0) fail("write", path, errno);
    if (::close(file.release()) != 0) fail("write", path, errno);
    if (::rename(temporary.c_str(), target.c_str()) != 0) fail("write", path, errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(target);
}

void write_file_atomic(const std::string& path, std::string_view bytes) {
  write_file_atomic(path, [&](FileWriter& file) { file.write(bytes); });
}

}  // namespace rlx
