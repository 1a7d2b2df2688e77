#include "quant/block_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "rlx/array.h"

namespace rlx {
namespace {

// ------------------------------------------------------------------------------------------------ helpers

template <class T>
T load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
void store(std::byte* p, T v) {
  std::memcpy(p, &v, sizeof v);
}

float largest_magnitude(const float* in, int n) {
  float m = 0;
  for (int i = 0; i < n; ++i) {
    if (!std::isfinite(in[i])) return NAN;
    m = std::max(m, std::fabs(in[i]));
  }
  return m;
}
// 1/d, and 0 where that is not finite: the scale's f16 is 0 there, whatever the codes are.
float reciprocal(float d) {
  float r = d == 0 ? 0 : 1 / d;
  return std::isfinite(r) ? r : 0;
}

// ------------------------------------------------------------------------------------------------ layouts

template <class T>
struct Plain {
  static constexpr std::int64_t kElements = 1, kBytes = sizeof(T);
  static void encode(const float* in, std::byte* out) { store(out, T(*in)); }
  static void decode(const std::byte* in, float* out) { *out = float(load<T>(in)); }
};

// f16 d, i8 q[32].
struct Q8_0 {
  static constexpr std::int64_t kElements = 32, kBytes = 34;
  static void encode(const float* in, std::byte* out) {
    float d = largest_magnitude(in, kElements) / 127, inverse = reciprocal(d);
    store(out, f16(d));
    for (int i = 0; i < kElements; ++i)
      store(out + 2 + i, d != d ? std::int8_t(0) : std::int8_t(std::round(in[i] * inverse)));  // half away from zero
  }
  static void decode(const std::byte* in, float* out) {
    float d = load<f16>(in);
    for (int i = 0; i < kElements; ++i) out[i] = float(std::int8_t(in[2 + i])) * d;
  }
};

// Where the ternary layouts keep codes: `put` takes 0, 1, 2 for -1, 0, 1.
template <class Layout>
struct Ternary : Layout {
  static constexpr std::int64_t kElements = 256;
  static void encode(const float* in, std::byte* out) {
    float d = largest_magnitude(in, kElements), inverse = reciprocal(d);
    std::uint8_t digits[kElements];
    for (int i = 0; i < kElements; ++i) digits[i] = d != d ? 1 : std::uint8_t(int(std::round(in[i] * inverse)) + 1);
    Layout::put(digits, out);
    store(out + Layout::kBytes - 2, f16(d));
  }
  static void encode_codes(const std::int8_t* codes, f16 d, std::byte* out) {
    std::uint8_t digits[kElements];
    for (int i = 0; i < kElements; ++i) digits[i] = std::uint8_t(codes[i] + 1);
    Layout::put(digits, out);
    store(out + Layout::kBytes - 2, d);
  }
  static void decode(const std::byte* in, float* out) {
    std::int8_t codes[kElements];
    Layout::get(in, codes);
    float d = load<f16>(in + Layout::kBytes - 2);
    for (int i = 0; i < kElements; ++i) out[i] = d * float(codes[i]);
  }
};

// Two bits an element: half h, byte 32h + m holds elements 128h + 32n + m at bits 2n; then f16 d.
struct TwoBits {
  static constexpr std::int64_t kBytes = 66;
  static void put(const std::uint8_t* digits, std::byte* out) {
    for (int h = 0; h < 2; ++h)
      for (int m = 0; m < 32; ++m) {
        auto e = digits + 128 * h + m;
        out[32 * h + m] = std::byte(e[0] | e[32] << 2 | e[64] << 4 | e[96] << 6);
      }
  }
  static void get(const std::byte* in, std::int8_t* codes) {
    for (int h = 0; h < 2; ++h)
      for (int n = 0; n < 4; ++n)
        for (int m = 0; m < 32; ++m)
          codes[128 * h + 32 * n + m] = std::int8_t((int(in[32 * h + m]) >> (2 * n) & 3) - 1);
  }
};

// Five base-3 digits a byte, the most significant first, as ceil(v * 256 / 243): 32 bytes of elements m + 32n, 16 bytes
// of 160 + m + 16n, 4 bytes of four digits 240 + m + 4n; then f16 d.
struct BaseThree {
  static constexpr std::int64_t kBytes = 54;
  struct Part {
    int bytes, digits, first;
  };
  static constexpr Part kParts[] = {{32, 5, 0}, {16, 5, 160}, {4, 4, 240}};
  static constexpr int kPowers[] = {1, 3, 9, 27, 81};

  static void put(const std::uint8_t* digits, std::byte* out) {
    for (auto& part : kParts) {
      for (int m = 0; m < part.bytes; ++m) {
        int v = 0;
        for (int n = 0; n < part.digits; ++n) v += digits[part.first + m + part.bytes * n] * kPowers[4 - n];
        out[m] = std::byte((v * 256 + 242) / 243);
      }
      out += part.bytes;
    }
  }
  static void get(const std::byte* in, std::int8_t* codes) {
    for (auto& part : kParts) {
      for (int n = 0; n < part.digits; ++n)
        for (int m = 0; m < part.bytes; ++m) {
          auto t = std::uint8_t(int(in[m]) * kPowers[n]);
          codes[part.first + m + part.bytes * n] = std::int8_t((t * 3 >> 8) - 1);
        }
      in += part.bytes;
    }
  }
};

// ------------------------------------------------------------------------------------------------ the table

// Rows: a type stored as a dtype, a type with a codec (a struct as above), a ternary one, and one of known size only.
template <class T>
constexpr BlockFormat plain(const char* name, std::uint32_t id) {
  return {name, id, 1, sizeof(T), dtype_of<T>()};
}
template <class B>
constexpr BlockFormat coded(const char* name, std::uint32_t id, DType dtype = DType::Any) {
  BlockFormat f{name, id, B::kElements, B::kBytes, dtype};
  f.encode = [](const float* in, std::byte* out, std::int64_t blocks) {
    for (std::int64_t i = 0; i < blocks; ++i) B::encode(in + i * B::kElements, out + i * B::kBytes);
  };
  f.decode = [](const std::byte* in, float* out, std::int64_t blocks) {
    for (std::int64_t i = 0; i < blocks; ++i) B::decode(in + i * B::kBytes, out + i * B::kElements);
  };
  return f;
}
template <class Layout>
constexpr BlockFormat ternary(const char* name, std::uint32_t id) {
  using B = Ternary<Layout>;
  auto f = coded<B>(name, id);
  f.encode_ternary = [](const std::int8_t* codes, f16 d, std::byte* out, std::int64_t blocks) {
    for (std::int64_t i = 0; i < blocks; ++i) B::encode_codes(codes + i * B::kElements, d, out + i * B::kBytes);
  };
  return f;
}
constexpr BlockFormat sized(const char* name, std::uint32_t id, std::int64_t elements, std::int64_t bytes) {
  return {name, id, elements, bytes};
}

constexpr BlockFormat kFormats[] = {
    coded<Plain<float>>("F32", 0, DType::F32),
    coded<Plain<f16>>("F16", 1, DType::F16),
    coded<Plain<bf16>>("BF16", 30, DType::BF16),
    coded<Q8_0>("Q8_0", 8),
    ternary<BaseThree>("TQ1_0", 34),
    ternary<TwoBits>("TQ2_0", 35),
    plain<std::int8_t>("I8", 24),
    plain<std::int16_t>("I16", 25),
    plain<std::int32_t>("I32", 26),
    plain<std::int64_t>("I64", 27),
    plain<double>("F64", 28),
    sized("Q4_0", 2, 32, 18),
    sized("Q4_1", 3, 32, 20),
    sized("Q5_0", 6, 32, 22),
    sized("Q5_1", 7, 32, 24),
    sized("Q8_1", 9, 32, 40),
    sized("Q2_K", 10, 256, 84),
    sized("Q3_K", 11, 256, 110),
    sized("Q4_K", 12, 256, 144),
    sized("Q5_K", 13, 256, 176),
    sized("Q6_K", 14, 256, 210),
    sized("Q8_K", 15, 256, 292),
    sized("IQ2_XXS", 16, 256, 66),
    sized("IQ2_XS", 17, 256, 74),
    sized("IQ3_XXS", 18, 256, 98),
    sized("IQ1_S", 19, 256, 50),
    sized("IQ4_NL", 20, 32, 18),
    sized("IQ3_S", 21, 256, 110),
    sized("IQ2_S", 22, 256, 82),
    sized("IQ4_XS", 23, 256, 136),
    sized("IQ1_M", 29, 256, 56),
    sized("MXFP4", 39, 32, 17),
    sized("NVFP4", 40, 64, 36),
};

// The names of the types that can be written with rows of this length, the smallest first.
std::string usable_types(std::int64_t row_length) {
  std::vector<const BlockFormat*> usable;
  for (auto& f : kFormats)
    if (f.encode && row_length % f.elements == 0) usable.push_back(&f);
  std::stable_sort(usable.begin(), usable.end(),
                   [](auto a, auto b) { return a->bits_per_element() < b->bits_per_element(); });
  std::vector<std::string_view> names;
  for (auto f : usable) names.push_back(f->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::int64_t rows_of(std::size_t elements, std::int64_t row_length, std::string_view tensor) {
  if (elements == 0) return 0;
  if (row_length <= 0 || std::int64_t(elements) % row_length)
    throw UserError(
        fmt::format("[gguf] tensor {}: {} elements are no whole rows of {}", in_quotes(tensor), elements, row_length));
  return std::int64_t(elements) / row_length;
}

}  // namespace

std::span<const BlockFormat> block_formats() { return kFormats; }

const BlockFormat* find_block_format(std::uint32_t id) {
  auto it = std::find_if(std::begin(kFormats), std::end(kFormats), [&](auto& f) { return f.id == id; });
  return it == std::end(kFormats) ? nullptr : it;
}

const BlockFormat& block_format(std::string_view name) {
  auto same = [&](std::string_view a) {
    return std::equal(a.begin(), a.end(), name.begin(), name.end(),
                      [](char x, char y) { return x == (y >= 'a' && y <= 'z' ? char(y - 32) : y); });
  };
  std::vector<std::string_view> writable;
  for (auto& f : kFormats) {
    if (same(f.name)) return f;
    if (f.encode) writable.push_back(f.name);
  }
  throw UserError(
      fmt::format("[gguf] got the tensor type {}, expected one of {}", in_quotes(name), fmt::join(writable, ", ")));
}

std::int64_t encoded_size(const BlockFormat& format, std::int64_t rows, std::int64_t row_length,
                          std::string_view tensor) {
  if (row_length % format.elements)
    throw UserError(
        fmt::format("[gguf] tensor {}: rows of {} elements are not a multiple of {}'s blocks of {}; types that fit: {}",
                    in_quotes(tensor), row_length, format.name, format.elements, usable_types(row_length)));
  std::int64_t bytes;
  if (__builtin_mul_overflow(row_length / format.elements, format.bytes, &bytes) ||
      __builtin_mul_overflow(bytes, rows, &bytes))
    throw UserError(fmt::format("[gguf] tensor {}: {} rows of {} elements of {} do not fit 63 bits", in_quotes(tensor),
                                rows, row_length, format.name));
  return bytes;
}

std::vector<std::byte> encode(const BlockFormat& format, std::span<const float> values, std::int64_t row_length,
                              std::string_view tensor) {
  if (!format.encode)
    throw Unsupported(fmt::format("[gguf] tensor {}: {} cannot be written", in_quotes(tensor), format.name));
  auto bytes = encoded_size(format, rows_of(values.size(), row_length, tensor), row_length, tensor);
  std::vector<std::byte> out(static_cast<std::size_t>(bytes));
  format.encode(values.data(), out.data(), std::int64_t(values.size()) / format.elements);
  return out;
}

std::vector<std::byte> encode_ternary(const BlockFormat& format, std::span<const std::int8_t> codes,
                                      std::span<const float> scales, std::int64_t row_length, std::string_view tensor) {
  if (!format.encode_ternary)
    throw Unsupported(fmt::format("[gguf] tensor {}: {} is not a ternary type", in_quotes(tensor), format.name));
  auto rows = rows_of(codes.size(), row_length, tensor);
  if (scales.size() != 1 && std::int64_t(scales.size()) != rows)
    throw UserError(fmt::format("[gguf] tensor {}: got {} scales for {} rows, expected 1 or one a row",
                                in_quotes(tensor), scales.size(), rows));
  for (auto d : scales)
    if (!std::isfinite(float(f16(d))) || (d != 0 && float(f16(d)) == 0))
      throw UserError(fmt::format("[gguf] tensor {}: the scale {} cannot be held by f16, as the blocks of {} do",
                                  in_quotes(tensor), d, format.name));
  auto bad = std::find_if(codes.begin(), codes.end(), [](auto c) { return c < -1 || c > 1; });
  if (bad != codes.end())
    throw UserError(fmt::format("[gguf] tensor {}: element {} has the code {}, expected -1, 0 or 1", in_quotes(tensor),
                                bad - codes.begin(), int(*bad)));
  auto bytes = encoded_size(format, rows, row_length, tensor);
  std::vector<std::byte> out(static_cast<std::size_t>(bytes));
  auto blocks = row_length / format.elements;
  for (std::int64_t r = 0; r < rows; ++r)
    format.encode_ternary(codes.data() + r * row_length, f16(scales[scales.size() == 1 ? 0 : std::size_t(r)]),
                          out.data() + r * blocks * format.bytes, blocks);
  return out;
}

void decode(const BlockFormat& format, std::span<const std::byte> blocks, std::span<float> values,
            std::string_view tensor) {
  if (!format.decode)
    throw Unsupported(fmt::format("[gguf] tensor {}: {} cannot be decoded", in_quotes(tensor), format.name));
  auto n = std::int64_t(values.size()) / format.elements;
  if (n * format.elements != std::int64_t(values.size()) || n * format.bytes != std::int64_t(blocks.size()))
    throw UserError(fmt::format("[gguf] tensor {}: {} bytes of {} do not hold {} elements", in_quotes(tensor),
                                blocks.size(), format.name, values.size()));
  format.decode(blocks.data(), values.data(), n);
}

}  // namespace rlx
