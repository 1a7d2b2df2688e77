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
  // From codes -1, 0, 1 with one scale for every block.
  void (*encode_ternary)(const std::int8_t* codes, f16 scale, std::byte* out, std::int64_t blocks) = nullptr;

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

/// Encodes rows of values, each a whole number of blocks. A NaN or an infinity makes its whole block decode to NaN in
/// the types without one of their own. Throws UserError, or Unsupported for a type that has no encoder.
std::vector<std::byte> encode(const BlockFormat&, std::span<const float> values, std::int64_t row_length,
                              std::string_view tensor);
/// Encodes codes -1, 0 and 1 with one scale for all blocks, or one for the blocks of each row, rounded to f16. Throws
/// UserError on another code and on a scale that f16 cannot hold (infinite there, or 0 though it is not); Unsupported
/// for a type that is not ternary.
std::vector<std::byte> encode_ternary(const BlockFormat&, std::span<const std::int8_t> codes,
                                      std::span<const float> scales, std::int64_t row_length, std::string_view tensor);
/// Decodes whole blocks. Throws Unsupported for a type that has no decoder.
void decode(const BlockFormat&, std::span<const std::byte> blocks, std::span<float> values, std::string_view tensor);

}  // namespace rlx
