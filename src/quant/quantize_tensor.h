// The types that a tensor can have in a safetensors file: floats as they are, or codes with scales beside them.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rlx/array.h"
#include "rlx/op_attrs.h"

namespace rlx {

struct TensorType {
  enum class Kind : std::uint8_t {
    Plain,     // a dtype: f32, f16, bf16
    Scaled,    // a float format with the scales of a layout (quant/scaled.h)
    RowScale,  // int8: an f32 scale a row
    Grouped,   // int4: an f16 scale for 32 elements of a row
    Ternary,   // an f32 scale for all: BitNet's rule
  };
  std::string name;
  Kind kind = Kind::Plain;
  DType dtype = DType::Any;
  Format format = Format::F8E4M3;
  ScaleLayout layout = ScaleLayout::PerTensor;

  bool operator==(const TensorType&) const = default;
};
/// Throws UserError that lists the names.
TensorType tensor_type(std::string_view name);

/// A tensor in one of these types. `codes` are packed: those of a row follow each other from the lowest bit of its
/// first byte on, and a row ends with its byte.
struct QuantizedArray {
  TensorType type;
  Extents shape;             // of the values
  Array codes;               // u8 [..., bytes of a row], i8 for int8; the values themselves in a plain type
  Array scale;               // empty in a plain type
  Array tensor_scale;        // of nvfp4
  std::int64_t clipped = 0;  // values beyond the largest that their scale can hold

  std::int64_t bytes() const;
};
/// Elements of a row of `row_length` under one scale: all for a scale a row, 1 where there is none; 0 where one scale
/// is for the whole tensor.
std::int64_t block_size(const TensorType&, std::int64_t row_length);

/// One tensor of a file, as a quantised array consists of: `suffix` follows the tensor's name.
struct TensorPart {
  const char* suffix;
  DType dtype;
  const char* code;  // the 8-bit float that safetensors calls these u8 codes, or ""
  Extents shape;
  Array QuantizedArray::*array;
};
std::vector<TensorPart> parts_of(const TensorType&, const Extents& shape);

/// Quantises floats. Throws UserError where a value is not finite or cannot be held, and where a type other than a
/// plain one gets no elements; the message names `tensor`.
QuantizedArray quantize_array(const Array& values, const TensorType&, MxRule, std::string_view tensor);
/// f32.
Array dequantize_array(const QuantizedArray&);

/// Codes of `bits` bits, one a byte, packed along the last axis, and back.
Array pack_codes(const Array& codes, int bits);
Array unpack_codes(const Array& packed, const Extents& shape, int bits);

}  // namespace rlx
