// Whole files: reading, mapping, and writing that is all or nothing.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rlx {

/// The bytes of a file. Throws DeviceError where it cannot be read, UserError where it is longer than `max_bytes`.
std::string read_file(const std::string& path, std::uint64_t max_bytes = UINT64_MAX);

/// A file as memory. Writes to it stay private to this process.
class MappedFile {
 public:
  /// Throws DeviceError where the file cannot be read.
  static std::shared_ptr<MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile() = default;
  std::string path_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// What write_file_atomic hands to its callback. Buffered.
class FileWriter {
 public:
  FileWriter(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
  /// Throws DeviceError that names the path and the system's reason (disk full, …).
  void write(const void* bytes, std::size_t size);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
  /// A number as the machine holds it; RLX runs on little-endian machines only.
  template <class T>
  void write_number(T v) {
    write(&v, sizeof v);
  }
  /// Zeros up to the next multiple of `alignment`.
  void pad(std::uint64_t alignment);
  std::uint64_t position() const { return position_; }
  void flush();

 private:
  void write_through(const char* bytes, std::size_t size);
  int descriptor_;
  std::string path_;
  std::string buffer_;
  std::uint64_t position_ = 0;
};

/// Writes a temporary file beside `path`, syncs it and renames it to `path`. On any failure, the callback's included,
/// the temporary file is removed and what was at `path` stays. Throws DeviceError; UserError where `path` is no regular
/// file.
void write_file_atomic(const std::string& path, const std::function<void(FileWriter&)>& fill);
void write_file_atomic(const std::string& path, std::string_view bytes);

}  // namespace rlx
