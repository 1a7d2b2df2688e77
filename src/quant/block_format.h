// GGUF's tensor types: rows of blocks of elements, as one table.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rlx/base.h"

namespace rlx {

/// One type. The pointers are null where RLX knows only the type's sizes.
struct BlockFormat {
  const char* name;
  std::uint32_t id;              // the number that stands in a GGUF file
  std::int64_t elements, bytes;  // of one block
  DType dtype = DType::Any;      // where an element is stored as one of these
  void (*encode)(const float* in, std::byte* out, std::int64_t blocks) = nullptr;
  void (*decode)(const std::byte* in, float* out, std::int64_t blocks) = nullptr;
  // Where the type has a scale for the whole tensor, by which values are divided; it stands beside the tensor.
  void (*encode_scaled)(const float* in, float tensor_scale, std::byte* out, std::int64_t blocks) = nullptr;
  // From codes -1, 0, 1 with one scale for every block.
  void (*encode_ternary)(const std::int8_t* codes, f16 scale, std::byte* out, std::int64_t blocks) = nullptr;

  bool can_encode() const { return encode || encode_scaled; }
  bool has_tensor_scale() const { return encode_scaled; }
  double bits_per_element() const { return 8.0 * double(bytes) / double(elements); }
};

std::span<const BlockFormat> block_formats();
/// Null where there is none.
const BlockFormat* find_block_format(std::uint32_t id);
/// By name, in either case. Throws UserError that lists the names of the types that can be written.
const BlockFormat& block_format(std::string_view name);

/// The bytes of `rows` rows of `row_length` elements. Throws UserError where a row is no whole number of blocks (it
/// names `tensor` and the types that would do) or the size does not fit 63 bits.
std::int64_t encoded_size(const BlockFormat&, std::int64_t rows, std::int64_t row_length, std::string_view tensor);

/// The tensor scale that holds the largest of these values: their largest magnitude / 2688 for NVFP4, at least 2^-126;
/// 1 for the types without one, and where that is 0 or not finite.
float tensor_scale_of(const BlockFormat&, std::span<const float> values);
/// The name of the tensor (f32, one element) that holds the tensor scale: `a.scale` for `a.weight`, else name +
/// ".scale".
std::string tensor_scale_name(std::string_view tensor);

/// Encodes rows of values, each a whole number of blocks. A NaN or an infinity makes its whole block decode to NaN in
/// the types without one of their own. The values of a type with a tensor scale are divided by it. Throws UserError, or
/// Unsupported for a type that has no encoder.
std::vector<std::byte> encode(const BlockFormat&, std::span<const float> values, std::int64_t row_length,
                              std::string_view tensor, float tensor_scale = 1);
/// Encodes codes -1, 0 and 1 with one scale for all blocks, or one for the blocks of each row, rounded to f16. Throws
/// UserError on another code and on a scale that f16 cannot hold (infinite there, or 0 though it is not); Unsupported
/// for a type that is not ternary.
std::vector<std::byte> encode_ternary(const BlockFormat&, std::span<const std::int8_t> codes,
                                      std::span<const float> scales, std::int64_t row_length, std::string_view tensor);
/// Decodes whole blocks; a tensor scale is not applied. Throws Unsupported for a type that has no decoder.
void decode(const BlockFormat&, std::span<const std::byte> blocks, std::span<float> values, std::string_view tensor);

}  // namespace rlx
