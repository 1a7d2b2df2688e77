// Checkpoints: folders RUN/checkpoint-<step> that are complete or not there at all.
#pragma once
#include <optional>
#include <string>

#include "rlx/train.h"
#include "train/tokenizer.h"

namespace rlx {

struct Checkpoint {
  std::int64_t step = 0;   // steps done; also the position in the data, as a batch follows from seed and step
  std::int64_t steps = 0;  // of the whole run; the schedule follows from it
  double seconds = 0;      // spent so far
  TrainConfig config;      // with the seed
  Tensors weights, optimizer;
};

/// Writes a folder under a temporary name, syncs and renames it, and only then removes the older ones. On failure (a
/// full disk) the older one stays and nothing of the new is left.
void save_checkpoint(const std::string& run, const Checkpoint&, const Tokenizer&);
/// The folder of the latest checkpoint of a run, or nothing.
std::optional<std::string> find_checkpoint(const std::string& run);
/// Throws UserError where something is missing, damaged or does not fit together.
Checkpoint load_checkpoint(const std::string& folder);
Tokenizer load_checkpoint_tokenizer(const std::string& folder);

/// Whether the folder is a run: it has a run.json.
bool is_run(const std::string& folder);

}  // namespace rlx
