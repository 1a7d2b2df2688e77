// Trained models as safetensors files, in the form that docs/quantize.md describes, with config and tokenizer in the
// metadata (docs/precisions.md).
#pragma once
#include "rlx/train.h"

namespace rlx {

/// Writes the file. `type` is what linear weights are, `embedding` f32, f16 or bf16.
std::vector<ExportedTensor> save_model_safetensors(const LanguageModel&, const std::string& path,
                                                   const std::string& type, DType embedding);
/// Throws UserError on a file that is no such model or not a whole one, DeviceError.
LanguageModel load_model_safetensors(const std::string& path, Device device);

}  // namespace rlx
