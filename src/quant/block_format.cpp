#include "quant/block_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/parallel.h"
#include "base/text.h"
#include "quant/block_codecs.h"
#include "quant/scaled.h"
#include "rlx/array.h"

namespace rlx {
namespace {

constexpr std::int64_t kGrain = 1 << 16;  // elements that a thread takes at a time

// An element stored as T.
template <class T>
struct Plain {
  static constexpr std::int64_t kElements = 1, kBytes = sizeof(T);
  static void encode(const float* in, std::byte* out) { blocks::store(out, T(*in)); }
  static void decode(const std::byte* in, float* out) { *out = float(blocks::load<T>(in)); }
};

// Rows: a type stored as a dtype, a type with a layout (what it can do follows from the layout's functions), and one of
// known size only.
template <class T>
constexpr BlockFormat plain(const char* name, std::uint32_t id) {
  return {name, id, 1, sizeof(T), dtype_of<T>()};
}
template <class B>
constexpr BlockFormat coded(const char* name, std::uint32_t id, DType dtype = DType::Any) {
  BlockFormat f{name, id, B::kElements, B::kBytes, dtype};
  f.decode = [](const std::byte* in, float* out, std::int64_t blocks) {
    for (std::int64_t i = 0; i < blocks; ++i) B::decode(in + i * B::kBytes, out + i * B::kElements);
  };
  if constexpr (requires { B::encode; })
    f.encode = [](const float* in, std::byte* out, std::int64_t blocks) {
      for (std::int64_t i = 0; i < blocks; ++i) B::encode(in + i * B::kElements, out + i * B::kBytes);
    };
  if constexpr (requires { B::encode_scaled; })
    f.encode_scaled = [](const float* in, float scale, std::byte* out, std::int64_t blocks) {
      for (std::int64_t i = 0; i < blocks; ++i) B::encode_scaled(in + i * B::kElements, scale, out + i * B::kBytes);
    };
  if constexpr (requires { B::encode_ternary; })
    f.encode_ternary = [](const std::int8_t* codes, f16 d, std::byte* out, std::int64_t blocks) {
      for (std::int64_t i = 0; i < blocks; ++i) B::encode_ternary(codes + i * B::kElements, d, out + i * B::kBytes);
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
    coded<blocks::Q4_0>("Q4_0", 2),
    coded<blocks::Q4_1>("Q4_1", 3),
    coded<blocks::Q5_0>("Q5_0", 6),
    coded<blocks::Q5_1>("Q5_1", 7),
    coded<blocks::Q8_0>("Q8_0", 8),
    coded<blocks::Q2_K>("Q2_K", 10),
    coded<blocks::Q3_K>("Q3_K", 11),
    coded<blocks::Q4_K>("Q4_K", 12),
    coded<blocks::Q5_K>("Q5_K", 13),
    coded<blocks::Q6_K>("Q6_K", 14),
    coded<blocks::TQ1_0>("TQ1_0", 34),
    coded<blocks::TQ2_0>("TQ2_0", 35),
    coded<blocks::MXFP4>("MXFP4", 39),
    coded<blocks::NVFP4>("NVFP4", 40),
    plain<std::int8_t>("I8", 24),
    plain<std::int16_t>("I16", 25),
    plain<std::int32_t>("I32", 26),
    plain<std::int64_t>("I64", 27),
    plain<double>("F64", 28),
    sized("Q8_1", 9, 32, 40),
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
};

// The names of the types that can be written with rows of this length, the smallest first.
std::string usable_types(std::int64_t row_length) {
  std::vector<const BlockFormat*> usable;
  for (auto& f : kFormats)
    if (f.can_encode() && row_length % f.elements == 0) usable.push_back(&f);
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
    if (f.can_encode()) writable.push_back(f.name);
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

float tensor_scale_of(const BlockFormat& format, std::span<const float> values) {
  if (!format.has_tensor_scale()) return 1;
  float largest = blocks::largest_magnitude(values.data(), std::int64_t(values.size()));
  return largest != largest ? 1 : tensor_scale(largest, kNvfp4Divisor);
}

std::string tensor_scale_name(std::string_view tensor) {
  constexpr std::string_view kWeight = ".weight";
  if (tensor.ends_with(kWeight)) tensor.remove_suffix(kWeight.size());
  return std::string(tensor) + ".scale";
}

std::vector<std::byte> encode(const BlockFormat& format, std::span<const float> values, std::int64_t row_length,
                              std::string_view tensor, float tensor_scale) {
  if (!format.can_encode())
    throw Unsupported(fmt::format("[gguf] tensor {}: {} cannot be written", in_quotes(tensor), format.name));
  auto bytes = encoded_size(format, rows_of(values.size(), row_length, tensor), row_length, tensor);
  std::vector<std::byte> out(static_cast<std::size_t>(bytes));
  parallel_for(std::int64_t(values.size()) / format.elements, kGrain / format.elements,
               [&](std::int64_t begin, std::int64_t end) {
                 auto from = values.data() + begin * format.elements;
                 auto to = out.data() + begin * format.bytes;
                 if (format.encode_scaled)
                   format.encode_scaled(from, tensor_scale, to, end - begin);
                 else
                   format.encode(from, to, end - begin);
               });
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
  auto in_row = row_length / format.elements;
  for (std::int64_t r = 0; r < rows; ++r)
    format.encode_ternary(codes.data() + r * row_length, f16(scales[scales.size() == 1 ? 0 : std::size_t(r)]),
                          out.data() + r * in_row * format.bytes, in_row);
  return out;
}

void decode(const BlockFormat& format, std::span<const std::byte> bytes, std::span<float> values,
            std::string_view tensor) {
  if (!format.decode)
    throw Unsupported(fmt::format("[gguf] tensor {}: {} cannot be decoded", in_quotes(tensor), format.name));
  auto n = std::int64_t(values.size()) / format.elements;
  if (n * format.elements != std::int64_t(values.size()) || n * format.bytes != std::int64_t(bytes.size()))
    throw UserError(fmt::format("[gguf] tensor {}: {} bytes of {} do not hold {} elements", in_quotes(tensor),
                                bytes.size(), format.name, values.size()));
  parallel_for(n, kGrain / format.elements, [&](std::int64_t begin, std::int64_t end) {
    format.decode(bytes.data() + begin * format.bytes, values.data() + begin * format.elements, end - begin);
  });
}

}  // namespace rlx
