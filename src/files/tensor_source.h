// The tensors of a safetensors or GGUF file as values, whatever they are stored as.
#pragma once
#include <optional>

#include "quant/block_format.h"
#include "quant/quantize_tensor.h"
#include "rlx/files.h"

namespace rlx {

/// One tensor in one of four forms.
struct SourceTensor {
  std::string name, type;  // the type by its name in the file
  Extents shape;
  Array array;                          // plain elements
  std::optional<QuantizedArray> coded;  // codes and scales of a safetensors file
  std::string code;                     // with `array`: the 8-bit float type whose codes they are
  std::optional<GgufTensor> gguf;       // any type of a GGUF file
  float tensor_scale = 1;               // with `gguf`: of NVFP4

  bool is_float() const;
  std::int64_t bytes() const;  // with its scales
  /// Floats and integers as they are, all else as f32.
  Array values() const;
  const BlockFormat& format() const;  // of `gguf`; throws UserError
};
struct TensorSource {
  std::vector<SourceTensor> tensors;            // in the file's order; scales that belong to others are not listed
  std::map<std::string, std::string> metadata;  // of safetensors, without what describes its quantised tensors
  std::optional<GgufFile> gguf;                 // keeps the bytes
};
/// Throws UserError on a malformed file and on metadata that its tensors do not fit, DeviceError.
TensorSource open_tensors(const std::string& path);

/// The metadata key under which a safetensors file says what its quantised tensors are: a JSON object of
/// {"type": name, "shape": […]} by name.
inline constexpr const char* kQuantizedKey = "rlx.quantized";
std::string quantized_text(const std::vector<std::pair<std::string, const QuantizedArray*>>&);

}  // namespace rlx
