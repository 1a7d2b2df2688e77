// Reading GGUF. Every count, length, offset and product is checked against the bytes that are left before it is used.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/file.h"
#include "base/text.h"
#include "files/gguf_kinds.h"
#include "quant/block_format.h"
#include "rlx/files.h"

namespace rlx {

class GgufReader {
 public:
  explicit GgufReader(const std::string& path) {
    out_.path_ = path;
    out_.file_ = MappedFile::open(path);
    bytes_ = out_.file_->bytes();
  }

  GgufFile read() {
    read_header();
    for (std::uint64_t i = 0; i < value_count_; ++i) read_value(i);
    read_alignment();
    for (std::uint64_t i = 0; i < tensor_count_; ++i) read_info(i);
    place_tensors();
    return std::move(out_);
  }

 private:
  struct Info {
    std::uint64_t size, offset;
  };

  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(fmt::format("[gguf] '{}': {}", out_.path_, what));
  }
  [[noreturn]] void fail_at(std::size_t at, const std::string& what) const {
    fail(fmt::format("{} (byte {})", what, at));
  }
  std::uint64_t left() const { return bytes_.size() - at_; }

  template <class T>
  T number(const char* what) {
    if (left() < sizeof(T)) fail_at(at_, fmt::format("the file ends in {}", what));
    T v;
    std::memcpy(&v, bytes_.data() + at_, sizeof v);
    at_ += sizeof v;
    return v;
  }
  std::string text(const std::string& what) {
    auto start = at_;
    auto length = number<std::uint64_t>(what.c_str());
    if (length > left())
      fail_at(start, fmt::format("{} has a length of {} bytes, but {} are left", what, length, left()));
    std::string s(reinterpret_cast<const char*>(bytes_.data()) + at_, length);
    at_ += length;
    return s;
  }

  void read_header() {
    if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0)
      fail(bytes_.empty() ? "the file is empty" : "it does not start with GGUF");
    at_ = 4;
    auto version = number<std::uint32_t>("its header");
    if ((version & 0xffff) == 0 && version != 0)
      fail(fmt::format("it is big-endian (version {:#010x}), expected little-endian", version));
    if (version != 2 && version != 3) fail(fmt::format("got version {}, expected 2 or 3", version));
    tensor_count_ = number<std::uint64_t>("its header");
    value_count_ = number<std::uint64_t>("its header");
    // The smallest key takes 14 bytes with its value, the smallest tensor 33.
    if (value_count_ > left() / 14) fail(fmt::format("{} keys in the {} bytes that are left", value_count_, left()));
    if (tensor_count_ > left() / 25)
      fail(fmt::format("{} tensors in the {} bytes that are left", tensor_count_, left()));
  }

  void read_value(std::uint64_t i) {
    auto start = at_;
    auto key = text(fmt::format("the name of key {}", i));
    if (key.empty()) fail_at(start, fmt::format("key {} has an empty name", i));
    auto kind = number<std::uint32_t>("a key's type");
    auto value = kind == kGgufArray ? array(key) : scalar(key, kind);
    if (!out_.value_index_.emplace(key, out_.values_.size()).second)
      fail_at(start, fmt::format("the key {} stands twice", in_quotes(key)));
    out_.values_.emplace_back(std::move(key), std::move(value));
  }

  [[noreturn]] void unknown_kind(const std::string& key, std::uint32_t kind) const {
    fail_at(at_, fmt::format("key {}: got the value type {}, expected 0 to 12", in_quotes(key), kind));
  }
  GgufValue scalar(const std::string& key, std::uint32_t kind) {
    GgufValue value;
    bool known = visit_gguf_kind(kind, [&]<class T>(T) { value = element<T>(key); });
    if (!known) unknown_kind(key, kind);
    return value;
  }
  GgufValue array(const std::string& key) {
    auto kind = number<std::uint32_t>("an array's type");
    auto start = at_;
    auto n = number<std::uint64_t>("an array's length");
    if (kind == kGgufArray) fail_at(start, fmt::format("key {}: arrays of arrays are not supported", in_quotes(key)));
    GgufValue value;
    bool known = visit_gguf_kind(kind, [&]<class T>(T) {
      std::uint64_t smallest = std::is_same_v<T, std::string> ? 8 : std::is_same_v<T, bool> ? 1 : sizeof(T);
      if (n > left() / smallest)
        fail_at(start,
                fmt::format("key {}: an array of {} elements, but {} bytes are left", in_quotes(key), n, left()));
      std::vector<T> elements;
      elements.reserve(n);
      for (std::uint64_t i = 0; i < n; ++i) elements.push_back(element<T>(key));
      value = std::move(elements);
    });
    if (!known) unknown_kind(key, kind);
    return value;
  }
  template <class T>
  T element(const std::string& key) {
    if constexpr (std::is_same_v<T, std::string>) {
      return text("a text of key " + in_quotes(key));
    } else if constexpr (std::is_same_v<T, bool>) {
      auto b = number<std::uint8_t>("a value");
      if (b > 1) fail_at(at_ - 1, fmt::format("key {}: got {} for a bool, expected 0 or 1", in_quotes(key), b));
      return b == 1;
    } else {
      return number<T>("a value");
    }
  }

  void read_alignment() {
    auto v = out_.find("general.alignment");
    if (!v) return;
    auto a = std::get_if<std::uint32_t>(v);
    if (!a) fail(fmt::format("general.alignment is {}, expected u32", gguf_kind(*v)));
    if (*a == 0 || *a % 8) fail(fmt::format("general.alignment is {}, expected a multiple of 8 that is not 0", *a));
    alignment_ = *a;
  }

  void read_info(std::uint64_t i) {
    auto start = at_;
    GgufTensor t;
    t.name = text(fmt::format("the name of tensor {}", i));
    if (t.name.empty()) fail_at(start, fmt::format("tensor {} has an empty name", i));
    if (t.name.size() > kGgufMaxName)
      fail_at(start, fmt::format("tensor {}: the name has {} bytes, expected at most {}", in_quotes(t.name),
                                 t.name.size(), kGgufMaxName));
    auto rank = number<std::uint32_t>("a tensor's rank");
    if (rank > kGgufMaxRank)
      fail_at(at_ - 4, fmt::format("tensor {}: got {} dims, expected at most 4", in_quotes(t.name), rank));
    for (std::uint32_t d = 0; d < rank; ++d) {
      auto n = number<std::uint64_t>("a tensor's dims");
      if (n == 0 || n > std::uint64_t(std::numeric_limits<std::int64_t>::max()))
        fail_at(at_ - 8, fmt::format("tensor {}: dim {} is {}, expected 1 to 2^63 - 1", in_quotes(t.name), d, n));
      t.shape.insert(t.shape.begin(), std::int64_t(n));
    }
    t.type = number<std::uint32_t>("a tensor's type");
    auto format = find_block_format(t.type);
    if (!format) fail_at(at_ - 4, fmt::format("tensor {}: the type {} is not known", in_quotes(t.name), t.type));
    Info info;
    info.offset = number<std::uint64_t>("a tensor's offset");
    if (info.offset % alignment_)
      fail_at(at_ - 8, fmt::format("tensor {}: the offset {} is no multiple of the alignment {}", in_quotes(t.name),
                                   info.offset, alignment_));
    info.size = size_in_bytes(t, *format);
    if (!out_.tensor_index_.emplace(t.name, out_.tensors_.size()).second)
      fail_at(start, fmt::format("tensor {} stands twice", in_quotes(t.name)));
    infos_.push_back(info);
    out_.tensors_.push_back(std::move(t));
  }
  std::uint64_t size_in_bytes(const GgufTensor& t, const BlockFormat& format) const {
    try {
      auto elements = count(t.shape);
      auto row = t.shape.empty() ? 1 : t.shape.back();
      return std::uint64_t(encoded_size(format, elements / row, row, t.name));
    } catch (const UserError& e) {
      std::string_view what = e.what(), tag = "[gguf] ";
      fail(what.starts_with(tag) ? std::string(what.substr(tag.size()))
                                 : fmt::format("tensor {}: {}", in_quotes(t.name), what));
    }
  }

  void place_tensors() {
    if (infos_.empty()) return;
    auto start = at_ + (alignment_ - at_ % alignment_) % alignment_;
    if (start > bytes_.size())
      fail(fmt::format("the data would start at byte {}, but the file has {}", start, bytes_.size()));
    auto size = bytes_.size() - start;
    std::vector<std::size_t> order(infos_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return infos_[a].offset < infos_[b].offset; });
    std::uint64_t end = 0;
    for (auto i : order) {
      auto& [bytes, offset] = infos_[i];
      auto& t = out_.tensors_[i];
      if (offset > size || bytes > size - offset)
        fail(fmt::format("tensor {}: {} bytes at offset {}, but the data has {}", in_quotes(t.name), bytes, offset,
                         size));
      if (offset < end)
        fail(fmt::format("tensor {}: at offset {} it overlaps one that ends at {}", in_quotes(t.name), offset, end));
      end = offset + bytes;
      t.bytes = bytes_.subspan(start + offset, bytes);
    }
  }

  GgufFile out_;
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::uint64_t tensor_count_ = 0, value_count_ = 0, alignment_ = 32;
  std::vector<Info> infos_;
};

GgufFile GgufFile::open(const std::string& path) { return GgufReader(path).read(); }

const GgufValue* GgufFile::find(std::string_view key) const {
  auto it = value_index_.find(key);
  return it == value_index_.end() ? nullptr : &values_[it->second].second;
}
const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}
const GgufTensor& GgufFile::tensor(std::string_view name) const {
  if (auto t = find_tensor(name)) return *t;
  throw UserError(
      fmt::format("[gguf] '{}': there is no tensor {} among its {}", path_, in_quotes(name), tensors_.size()));
}

void GgufFile::wrong(std::string_view key, const GgufValue* value, const std::string& expected) const {
  throw UserError(fmt::format("[gguf] '{}': key {}: got {}, expected {}", path_, in_quotes(key),
                              value ? gguf_kind(*value) : "none", expected));
}
std::int64_t GgufFile::get_int(std::string_view key) const {
  auto value = find(key);
  if (!value) wrong(key, value, "an integer");
  return std::visit(
      [&]<class T>(const T& v) -> std::int64_t {
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
          if (std::in_range<std::int64_t>(v)) return std::int64_t(v);
        }
        wrong(key, value, "an integer of 63 bits");
      },
      *value);
}
double GgufFile::get_number(std::string_view key) const {
  auto value = find(key);
  if (!value) wrong(key, value, "a number");
  return std::visit(
      [&]<class T>(const T& v) -> double {
        if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) return double(v);
        wrong(key, value, "a number");
      },
      *value);
}

Array GgufTensor::to_array() const {
  auto format = find_block_format(type);
  if (!format) throw UserError(fmt::format("[gguf] tensor {}: the type {} is not known", in_quotes(name), type));
  bool is_plain = format->dtype != DType::Any;
  if (!is_plain && !format->decode) decode(*format, bytes, {}, name);  // says so before memory is taken
  Array out(is_plain ? format->dtype : DType::F32, shape);
  if (!is_plain) {
    decode(*format, bytes, out.values<float>(), name);
  } else {
    std::memcpy(out.bytes(), bytes.data(), out.byte_size());
  }
  return out;
}

std::string gguf_kind(const GgufValue& value) {
  constexpr const char* kNames[] = {"u8",     "i8",    "u16",   "i16",    "u32",      "i32",   "f32",   "bool",
                                    "string", "u64",   "i64",   "f64",    "u8[]",     "i8[]",  "u16[]", "i16[]",
                                    "u32[]",  "i32[]", "f32[]", "bool[]", "string[]", "u64[]", "i64[]", "f64[]"};
  static_assert(std::size(kNames) == std::variant_size_v<GgufValue>);
  return kNames[value.index()];
}
std::string gguf_type_name(std::uint32_t type) {
  auto format = find_block_format(type);
  return format ? format->name : fmt::format("type {}", type);
}
std::uint32_t gguf_type(std::string_view name) { return block_format(name).id; }

}  // namespace rlx
