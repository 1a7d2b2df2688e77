// Files for tests, built byte by byte.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"
#include "rlx/base.h"

namespace rlx::test {

inline std::string little_endian(std::uint64_t v, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += char(v >> (8 * i));
  return out;
}
inline std::string u32(std::uint64_t v) { return little_endian(v, 4); }
inline std::string u64(std::uint64_t v) { return little_endian(v, 8); }
inline std::string f32s(std::initializer_list<float> values) {
  std::string out;
  for (float v : values) out += u32(std::bit_cast<std::uint32_t>(v));
  return out;
}
inline std::string from_hex(std::string_view hex) {
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    out += char(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return out;
}

/// A file with the given bytes, removed again.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view bytes = {}) {
    static int counter = 0;
    auto name = "rlx-test-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
    path_ = (std::filesystem::temp_directory_path() / name).string();
    write_file_atomic(path_, bytes);
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// The message of the UserError that f throws, without the file's name.
template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const UserError& e) {
    std::string what = e.what();
    auto open = what.find("] '"), close = what.find("': ", open);
    return open != what.npos && close != what.npos ? what.substr(close + 3) : what;
  }
  return "no error";
}

// ---- safetensors

inline std::string safetensors(const std::string& header, const std::string& data = {}) {
  return u64(header.size()) + header + data;
}
inline std::string st_entry(const std::string& name, const std::string& dtype, const std::string& shape,
                            const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

// ---- GGUF

inline std::string gguf_text(const std::string& s) { return u64(s.size()) + s; }
inline std::string gguf_key(const std::string& name, std::uint32_t kind, const std::string& value) {
  return gguf_text(name) + u32(kind) + value;
}
inline std::string gguf_info(const std::string& name, std::initializer_list<std::uint64_t> dims, std::uint32_t type,
                             std::uint64_t offset) {
  auto out = gguf_text(name) + u32(dims.size());
  for (auto d : dims) out += u64(d);
  return out + u32(type) + u64(offset);
}
inline std::string gguf(std::uint64_t tensors, std::uint64_t keys, const std::string& body,
                        const std::string& data = {}, std::size_t alignment = 32) {
  auto out = "GGUF" + u32(3) + u64(tensors) + u64(keys) + body;
  out.resize((out.size() + alignment - 1) / alignment * alignment);
  return out + data;
}

}  // namespace rlx::test
