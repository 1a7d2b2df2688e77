// NumPy's .npy files: versions 1 to 3, both byte orders and both axis orders in; version 1, little-endian, C order out.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/file.h"
#include "rlx/array.h"

namespace rlx {
namespace {

struct Descr {
  std::string_view text;  // without the byte order
  DType dtype;
};
// NumPy has no bf16: ml_dtypes' one is saved as two bytes without a meaning.
constexpr Descr kDescrs[] = {{"b1", DType::Bool}, {"u1", DType::U8},  {"u2", DType::U16},  {"u4", DType::U32},
                             {"u8", DType::U64},  {"i1", DType::I8},  {"i2", DType::I16},  {"i4", DType::I32},
                             {"i8", DType::I64},  {"f2", DType::F16}, {"V2", DType::BF16}, {"f4", DType::F32},
                             {"f8", DType::F64},  {"c8", DType::C64}};

struct Header {
  DType dtype = DType::Any;
  bool is_big_endian = false, is_fortran = false;
  Extents shape;
};

// Parses the Python dict literal {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}
  Header parse() {
    Header h;
    bool has_descr = false, has_order = false, has_shape = false;
    need('{');
    while (!take('}')) {
      auto key = quoted();
      need(':');
      if (key == "descr" && !std::exchange(has_descr, true)) {
        descr(h);
      } else if (key == "fortran_order" && !std::exchange(has_order, true)) {
        h.is_fortran = word("True");
        if (!h.is_fortran && !word("False")) fail("True or False");
      } else if (key == "shape" && !std::exchange(has_shape, true)) {
        shape(h);
      } else {
        fail("'descr', 'fortran_order' and 'shape', each once");
      }
      if (!take(',')) {
        need('}');
        break;
      }
    }
    skip();
    if (at_ != text_.size()) fail("the end of the header");
    if (!has_descr || !has_order || !has_shape) fail("'descr', 'fortran_order' and 'shape'");
    return h;
  }

 private:
  [[noreturn]] void fail(std::string_view expected) const {
    throw UserError(fmt::format("npy '{}': the header at character {} is not what it should be, expected {}", path_,
                                at_, expected));
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool word(std::string_view w) {
    skip();
    if (text_.substr(at_, w.size()) != w) return false;
    at_ += w.size();
    return true;
  }
  bool take(char c) { return word(std::string_view(&c, 1)); }
  void need(char c) {
    if (!take(c)) fail(fmt::format("'{}'", c));
  }
  std::string_view quoted() {
    skip();
    char quote = at_ < text_.size() ? text_[at_] : ' ';
    if (quote != '\'' && quote != '"') fail("a text in quotes");
    auto end = text_.find(quote, at_ + 1);
    if (end == text_.npos) fail("the closing quote");
    auto out = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return out;
  }
  void descr(Header& h) {
    skip();
    if (at_ < text_.size() && text_[at_] == '[')
      throw Unsupported(fmt::format("npy '{}': structured dtypes are not supported", path_));
    auto text = quoted();
    auto row = std::find_if(std::begin(kDescrs), std::end(kDescrs), [&](auto& d) {
      return !text.empty() && std::string_view("<>|=").find(text[0]) != text.npos && d.text == text.substr(1);
    });
    if (row == std::end(kDescrs))
      throw Unsupported(fmt::format("npy '{}': the dtype '{}' is not supported", path_, text.substr(0, 40)));
    h.dtype = row->dtype;
    h.is_big_endian = text[0] == '>';
  }
  void shape(Header& h) {
    need('(');
    while (!take(')')) {
      skip();
      std::int64_t n = 0;
      auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), n);
      if (error != std::errc() || n < 0) fail("a size");
      at_ = std::size_t(end - text_.data());
      take('L');  // Python 2 wrote its long ints so
      h.shape.push_back(n);
      if (!take(',')) {
        need(')');
        break;
      }
    }
    if (h.shape.size() > 64) fail("at most 64 axes");
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t at_ = 0;
};

void swap_bytes(std::byte* p, std::size_t bytes, std::size_t width) {
  for (std::size_t i = 0; i + width <= bytes; i += width) std::reverse(p + i, p + i + width);
}

// Column-major bytes into row-major ones.
void copy_fortran(const std::byte* in, Array& out) {
  auto& shape = out.shape();
  auto width = size_of(out.dtype());
  std::vector<std::int64_t> index(shape.size());
  for (std::int64_t i = 0; i < out.size(); ++i) {
    std::int64_t offset = 0;
    for (std::size_t a = shape.size(); a-- > 0;) offset = offset * shape[a] + index[a];
    std::memcpy(out.bytes() + std::size_t(i) * width, in + std::size_t(offset) * width, width);
    for (std::size_t a = shape.size(); a-- > 0 && ++index[a] == shape[a];) index[a] = 0;
  }
}

}  // namespace

Array Array::load_npy(const std::string& path) {
  auto file = MappedFile::open(path);
  auto bytes = file->bytes();
  if (bytes.size() < 10 || std::memcmp(bytes.data(), "\x93NUMPY", 6) != 0)
    throw UserError(fmt::format("npy '{}': the file does not start as a .npy file", path));
  int version = int(bytes[6]);
  if (version < 1 || version > 3)
    throw UserError(fmt::format("npy '{}': got format version {}, expected 1, 2 or 3", path, version));
  std::size_t length = std::size_t(bytes[8]) | std::size_t(bytes[9]) << 8, start = 10;
  if (version > 1) {
    if (bytes.size() < 12) throw UserError(fmt::format("npy '{}': the file ends in its header", path));
    length |= std::size_t(bytes[10]) << 16 | std::size_t(bytes[11]) << 24;
    start = 12;
  }
  if (length > bytes.size() - start)
    throw UserError(fmt::format("npy '{}': the header has {} bytes, the file {} after its start", path, length,
                                bytes.size() - start));
  auto header = HeaderParser({reinterpret_cast<const char*>(bytes.data()) + start, length}, path).parse();

  auto data = bytes.subspan(start + length);
  std::size_t wanted;
  if (__builtin_mul_overflow(std::size_t(count(header.shape)), size_of(header.dtype), &wanted) || wanted != data.size())
    throw UserError(fmt::format("npy '{}': got {} bytes of data, expected {} elements of {} bytes for shape {}", path,
                                data.size(), count(header.shape), size_of(header.dtype), to_string(header.shape)));
  Array out(header.dtype, header.shape);
  if (header.is_fortran && header.shape.size() > 1) {
    copy_fortran(data.data(), out);
  } else if (wanted) {
    std::memcpy(out.bytes(), data.data(), wanted);
  }
  if (header.dtype == DType::Bool)
    for (std::size_t i = 0; i < wanted; ++i)
      if (out.bytes()[i] > std::byte(1))
        throw UserError(
            fmt::format("npy '{}': element {} of a bool array is {}, expected 0 or 1", path, i, int(out.bytes()[i])));
  auto width = header.dtype == DType::C64 ? 4 : size_of(header.dtype);
  if (header.is_big_endian) swap_bytes(out.bytes(), wanted, width);
  return out;
}

void Array::save_npy(const std::string& path) const {
  auto row = std::find_if(std::begin(kDescrs), std::end(kDescrs), [&](auto& d) { return d.dtype == dtype_; });
  if (row == std::end(kDescrs))
    throw UserError(fmt::format("npy '{}': an array without a dtype cannot be saved", path));
  std::string shape;
  for (auto& n : shape_) shape += std::to_string(n) + (shape_.size() == 1 ? "," : &n == &shape_.back() ? "" : ", ");
  auto header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                            size_of(dtype_) == 1 ? '|' : '<', row->text, shape);
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  write_file_atomic(path, [&](FileWriter& file) {
    file.write(std::string_view("\x93NUMPY\x01\x00", 8));
    file.write_number(std::uint16_t(header.size()));
    file.write(header);
    file.write(bytes(), byte_size());
  });
}

}  // namespace rlx
