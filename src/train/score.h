// How well a model predicts tokens.
#pragma once
#include <optional>

#include "rlx/train.h"
#include "train/model.h"

namespace rlx {

/// The summed cross entropy of texts, from overlapping windows.
class Scorer {
 public:
  Scorer(const ModelConfig&, Device);
  /// Inference params.
  void set_params(const Tensors&);
  /// Nats of all tokens, each predicted from at most `window` before it, and from at least half of them where there are
  /// so many; the first one costs ln(vocab). Throws UserError where there is none.
  double nats(std::span<const std::int32_t> tokens, std::int64_t window);

 private:
  std::int64_t vocab_size_;
  CompiledGraph graph_;
};

}  // namespace rlx
