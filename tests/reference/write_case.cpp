// Writes what the PyTorch implementation starts from into the folder $1: batches.npy, i32 [step, batch, length + 1],
// and for each precision and optimizer a run with the checkpoint of step 0.
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "reference/reference_case.h"
#include "train/checkpoint.h"

using namespace rlx;

int main(int argc, char** argv) try {
  if (argc != 3) return std::fputs("usage: rlx_reference_case SOURCE_FOLDER FOLDER\n", stderr), 2;
  std::string folder = argv[2];
  auto batches = reference::batches(argv[1]);
  Array all(DType::I32, {reference::kSteps, reference::kBatch, reference::kLength + 1});
  for (std::size_t i = 0; i < batches.size(); ++i)
    std::memcpy(all.bytes() + i * batches[i].byte_size(), batches[i].bytes(), batches[i].byte_size());
  std::filesystem::create_directories(folder);
  all.save_npy(folder + "/batches.npy");
  for (auto precision : reference::kPrecisions)
    for (auto optimizer : reference::kOptimizers) {
      TrainConfig config = reference::config_of(optimizer, precision);
      std::string run = folder + "/" + precision + "-" + optimizer;
      std::filesystem::create_directories(run);
      save_checkpoint(
          run,
          {.steps = config.steps, .config = config, .weights = init_params(config.model, config.seed), .optimizer = {}},
          Tokenizer::bytes());
    }
} catch (const Error& e) {
  return std::fprintf(stderr, "%s\n", e.what()), 1;
}
