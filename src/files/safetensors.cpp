// safetensors: u64 length of a JSON header, the header, then the tensors' bytes, which must cover the rest of the file
// without gap or overlap. The header is read as events, so that its nesting and duplicates cost nothing.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/text.h"
#include "rlx/files.h"

namespace rlx {
namespace {

constexpr std::uint64_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr std::size_t kMaxRank = 64;
constexpr const char* kMetadata = "__metadata__";

// In the order of the format's own library, which sorts tensors by it when it writes.
struct DTypeRow {
  const char* name;
  DType dtype;
  bool is_code = false;  // a format that RLX keeps as u8 codes
};
constexpr DTypeRow kDTypes[] = {{"BOOL", DType::Bool},
                                {"U8", DType::U8},
                                {"I8", DType::I8},
                                {"F8_E5M2", DType::U8, true},
                                {"F8_E4M3", DType::U8, true},
                                {"F8_E8M0", DType::U8, true},
                                {"F8_E4M3FNUZ", DType::U8, true},
                                {"F8_E5M2FNUZ", DType::U8, true},
                                {"I16", DType::I16},
                                {"U16", DType::U16},
                                {"F16", DType::F16},
                                {"BF16", DType::BF16},
                                {"I32", DType::I32},
                                {"U32", DType::U32},
                                {"F32", DType::F32},
                                {"C64", DType::C64},
                                {"F64", DType::F64},
                                {"I64", DType::I64},
                                {"U64", DType::U64}};

struct Entry {
  std::string name;
  std::string dtype;
  Extents shape;
  std::uint64_t begin = 0, end = 0;
};

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw UserError(fmt::format("[safetensors] '{}': {}", path, what));
}

// Takes the events of {"name": {"dtype": text, "shape": [n, …], "data_offsets": [begin, end]}, "__metadata__": {text:
// text}}.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
  std::string error;

  bool key(string_t& k) override {
    if (place_ == Place::Top) {
      name_ = k;
      if (k == kMetadata) {
        if (std::exchange(has_metadata_, true)) return stop("the header has __metadata__ twice");
        place_ = Place::BeforeMetadata;
      } else {
        entries.push_back({k, {}, {}, 0, 0});
        fields_ = 0;
        place_ = Place::BeforeTensor;
      }
      return true;
    }
    if (place_ == Place::Metadata) {
      metadata_key_ = k;
      if (!metadata.emplace(k, "").second) return stop(fmt::format("__metadata__ has the key {} twice", in_quotes(k)));
      return true;
    }
    int field = k == "dtype" ? 1 : k == "shape" ? 2 : k == "data_offsets" ? 4 : 0;
    if (!field) return stop_at(fmt::format("got the key {}, expected dtype, shape and data_offsets", in_quotes(k)));
    if (fields_ & field) return stop_at(fmt::format("the key {} stands twice", in_quotes(k)));
    fields_ |= field;
    place_ = field == 1 ? Place::DType : field == 2 ? Place::BeforeShape : Place::BeforeOffsets;
    return true;
  }
  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::Start: place_ = Place::Top; return true;
      case Place::BeforeMetadata: place_ = Place::Metadata; return true;
      case Place::BeforeTensor: place_ = Place::Tensor; return true;
      default: return unexpected("an object");
    }
  }
  bool end_object() override {
    if (place_ == Place::Tensor && fields_ != 7) return stop_at("it lacks one of dtype, shape and data_offsets");
    place_ = place_ == Place::Top ? Place::End : Place::Top;
    return true;
  }
  bool start_array(std::size_t) override {
    if (place_ != Place::BeforeShape && place_ != Place::BeforeOffsets) return unexpected("an array");
    place_ = place_ == Place::BeforeShape ? Place::Shape : Place::Offsets;
    offsets_ = 0;
    return true;
  }
  bool end_array() override {
    if (place_ == Place::Offsets && offsets_ != 2)
      return stop_at(fmt::format("data_offsets has {} numbers, expected 2", offsets_));
    place_ = Place::Tensor;
    return true;
  }
  bool string(string_t& s) override {
    if (place_ == Place::Metadata) {
      metadata[metadata_key_] = s;
      return true;
    }
    if (place_ != Place::DType) return unexpected("a text");
    entries.back().dtype = s;
    place_ = Place::Tensor;
    return true;
  }
  bool number_unsigned(number_unsigned_t n) override {
    if (place_ == Place::Shape) {
      auto& shape = entries.back().shape;
      if (n > std::uint64_t(std::numeric_limits<std::int64_t>::max()))
        return stop_at(fmt::format("the size {} does not fit 63 bits", n));
      if (shape.size() == kMaxRank) return stop_at(fmt::format("it has more than {} axes", kMaxRank));
      shape.push_back(std::int64_t(n));
      return true;
    }
    if (place_ != Place::Offsets) return unexpected("a number");
    if (offsets_ < 2) (offsets_ ? entries.back().end : entries.back().begin) = n;
    if (++offsets_ > 2) return stop_at("data_offsets has more than 2 numbers");
    return true;
  }
  bool number_integer(number_integer_t n) override { return unexpected(fmt::format("the number {}", n)); }
  bool number_float(number_float_t, const string_t& text) override {
    return unexpected(fmt::format("the number {}", text.substr(0, 40)));
  }
  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a truth value"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    std::string_view text = e.what();
    auto colon = text.find(": ");
    return stop(fmt::format("the header is no valid JSON at byte {}: {}", position,
                            in_quotes(text.substr(colon == text.npos ? 0 : colon + 2), 200)));
  }

 private:
  enum class Place {
    Start,
    Top,
    BeforeMetadata,
    Metadata,
    BeforeTensor,
    Tensor,
    DType,
    BeforeShape,
    Shape,
    BeforeOffsets,
    Offsets,
    End
  };
  bool stop(std::string what) {
    error = std::move(what);
    return false;
  }
  bool stop_at(const std::string& what) { return stop(fmt::format("tensor {}: {}", in_quotes(name_), what)); }
  bool unexpected(const std::string& got) {
    switch (place_) {
      case Place::Start: return stop(fmt::format("the header is {}, expected an object", got));
      case Place::BeforeMetadata:
      case Place::Metadata: return stop(fmt::format("__metadata__: got {}, expected an object of texts", got));
      case Place::DType: return stop_at(fmt::format("got {} for dtype, expected a text", got));
      case Place::BeforeShape:
      case Place::Shape: return stop_at(fmt::format("got {} in shape, expected sizes of 0 or more", got));
      case Place::BeforeOffsets:
      case Place::Offsets:
        return stop_at(fmt::format("got {} in data_offsets, expected two offsets of 0 or more", got));
      default: return stop_at(fmt::format("got {}, expected an object with dtype, shape and data_offsets", got));
    }
  }

  Place place_ = Place::Start;
  std::string name_, metadata_key_;
  int fields_ = 0, offsets_ = 0;
  bool has_metadata_ = false;
};

std::string_view header_of(const std::string& path, std::span<const std::byte> file) {
  if (file.size() < 8)
    fail(path, fmt::format("it has {} bytes, expected at least 8 for the header's length", file.size()));
  std::uint64_t length;
  std::memcpy(&length, file.data(), 8);
  if (length > kMaxHeader) fail(path, fmt::format("the header has {} bytes, expected at most {}", length, kMaxHeader));
  if (length > file.size() - 8)
    fail(path, fmt::format("the header has {} bytes, but only {} follow its length", length, file.size() - 8));
  std::string_view header(reinterpret_cast<const char*>(file.data()) + 8, length);
  // The JSON reader takes a zero byte for the end of the text, so it must not see one.
  if (auto zero = header.find('\0'); zero != header.npos)
    fail(path, fmt::format("the header has a zero byte at byte {}", zero));
  if (header.empty() || header[0] != '{') fail(path, "the header does not start with '{'");
  return header;
}

// Sorts by place and checks that the tensors cover `size` bytes, each once.
void check_places(const std::string& path, std::vector<Entry>& entries, std::uint64_t size) {
  std::sort(entries.begin(), entries.end(), [](auto& a, auto& b) { return a.name < b.name; });
  for (std::size_t i = 1; i < entries.size(); ++i)
    if (entries[i].name == entries[i - 1].name)
      fail(path, fmt::format("tensor {} stands twice", in_quotes(entries[i].name)));
  std::stable_sort(entries.begin(), entries.end(),
                   [](auto& a, auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::uint64_t covered = 0;
  for (auto& e : entries) {
    auto at = fmt::format("tensor {} at [{}, {})", in_quotes(e.name), e.begin, e.end);
    if (e.begin > e.end) fail(path, at + ": it ends before it begins");
    if (e.end > size) fail(path, fmt::format("{}: the file has only {} bytes of data", at, size));
    if (e.begin < covered) fail(path, fmt::format("{}: it overlaps a tensor that ends at {}", at, covered));
    if (e.begin > covered) fail(path, fmt::format("{}: no tensor covers the bytes from {} on", at, covered));
    covered = e.end;
  }
  if (covered != size) fail(path, fmt::format("no tensor covers the bytes from {} to the end at {}", covered, size));
}

const DTypeRow& dtype_of_entry(const std::string& path, const Entry& e) {
  auto row = std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](auto& r) { return r.name == e.dtype; });
  if (row != std::end(kDTypes)) return *row;
  throw Unsupported(fmt::format("[safetensors] '{}': tensor {}: the dtype {} is not supported", path, in_quotes(e.name),
                                in_quotes(e.dtype)));
}

Array to_array(const std::string& path, const Entry& e, DType dtype, const std::shared_ptr<MappedFile>& file,
               std::size_t start) {
  std::int64_t elements;
  try {
    elements = count(e.shape);
  } catch (const UserError& error) {
    fail(path, fmt::format("tensor {}: {}", in_quotes(e.name), error.what()));
  }
  std::uint64_t wanted;
  if (__builtin_mul_overflow(std::uint64_t(elements), size_of(dtype), &wanted) || wanted != e.end - e.begin)
    fail(path, fmt::format("tensor {}: {} elements of {} in {} bytes", in_quotes(e.name), to_string(e.shape), e.dtype,
                           e.end - e.begin));
  auto bytes = file->bytes().subspan(start + e.begin, wanted);
  if (dtype == DType::Bool) {
    auto bad = std::find_if(bytes.begin(), bytes.end(), [](auto b) { return b > std::byte(1); });
    if (bad != bytes.end())
      fail(path, fmt::format("tensor {}: element {} is {}, expected 0 or 1", in_quotes(e.name), bad - bytes.begin(),
                             int(*bad)));
  }
  if (wanted && reinterpret_cast<std::uintptr_t>(bytes.data()) % size_of(dtype) == 0)
    return Array::share(file, bytes.data(), dtype, e.shape);
  Array copy(dtype, e.shape);
  if (wanted) std::memcpy(copy.bytes(), bytes.data(), wanted);
  return copy;
}

}  // namespace

Safetensors load_safetensors(const std::string& path) {
  auto file = MappedFile::open(path);
  auto header = header_of(path, file->bytes());
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(header.begin(), header.end(), &reader)) fail(path, reader.error);
  auto start = 8 + header.size();
  check_places(path, reader.entries, file->bytes().size() - start);
  Safetensors out;
  out.metadata = std::move(reader.metadata);
  for (auto& e : reader.entries) {
    auto& row = dtype_of_entry(path, e);
    out.tensors.emplace(e.name, to_array(path, e, row.dtype, file, start));
    if (row.is_code) out.formats.emplace(e.name, row.name);
  }
  return out;
}

void save_safetensors(const std::string& path, const Tensors& tensors,
                      const std::map<std::string, std::string>& metadata,
                      const std::map<std::string, std::string>& formats) {
  struct Item {
    const std::string* name;
    const Array* array;
    const DTypeRow* row;
  };
  std::vector<Item> items;
  for (auto& [name, format] : formats)
    if (!tensors.contains(name)) fail(path, fmt::format("there is no tensor {} to be {}", in_quotes(name), format));
  for (auto& [name, array] : tensors) {
    auto format = formats.find(name);
    bool is_code = format != formats.end();
    auto row = std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](auto& r) {
      return r.dtype == array.dtype() && r.is_code == is_code && (!is_code || r.name == format->second);
    });
    if (row == std::end(kDTypes) && is_code)
      fail(path,
           fmt::format("tensor {} of {} cannot be {}", in_quotes(name), to_string(array.dtype()), format->second));
    if (row == std::end(kDTypes)) fail(path, fmt::format("tensor {} has no dtype", in_quotes(name)));
    if (name == kMetadata) fail(path, "a tensor cannot be named __metadata__");
    items.push_back({&name, &array, row});
  }
  std::stable_sort(items.begin(), items.end(), [](auto& a, auto& b) { return a.row > b.row; });

  auto text = [&](const std::string& s) {
    if (!is_utf8(s)) fail(path, fmt::format("the text {} is not UTF-8", in_quotes(s)));
    return nlohmann::json(s).dump();
  };
  std::string header = "{";
  auto comma = [&] { return header.size() > 1 ? "," : ""; };
  if (!metadata.empty()) {
    std::string inner;
    for (auto& [k, v] : metadata) inner += fmt::format("{}{}:{}", inner.empty() ? "" : ",", text(k), text(v));
    header += fmt::format("\"{}\":{{{}}}", kMetadata, inner);
  }
  std::uint64_t at = 0;
  for (auto& i : items) {
    auto end = at + i.array->byte_size();
    header += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}", comma(), text(*i.name),
                          i.row->name, to_string(i.array->shape()), at, end);
    at = end;
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > kMaxHeader)
    fail(path, fmt::format("the header has {} bytes, expected at most {}", header.size(), kMaxHeader));
  write_file_atomic(path, [&](FileWriter& out) {
    out.write_number(std::uint64_t(header.size()));
    out.write(header);
    for (auto& i : items) out.write(i.array->bytes(), i.array->byte_size());
  });
}

}  // namespace rlx
