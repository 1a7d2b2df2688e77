// The bitnet model in GGUF files.
#pragma once
#include "rlx/train.h"

namespace rlx {

/// A file of the `bitnet` architecture, as stock llama.cpp reads it. Linear weights that are ternary (every one of
/// them) mean bitnet precision, unless the file's `rlx.precision` says otherwise. Throws UserError, Unsupported,
/// DeviceError.
LanguageModel load_model_gguf(const std::string& path, Device device);

}  // namespace rlx
