#include "train/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "train/model.h"

namespace rlx {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPrefix = "checkpoint-";
constexpr const char* kWeights = "weights.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kState = "state.json";
constexpr const char* kTokenizer = "tokenizer.json";

// A folder's entries survive a power cut only once it is synced itself.
void sync_folder(const fs::path& folder) {
  int d = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (d < 0) return;
  ::fsync(d);
  ::close(d);
}

// The step of `checkpoint-<step>`, or -1.
std::int64_t step_of(const fs::path& folder) {
  std::string name = folder.filename().string();
  if (!name.starts_with(kPrefix) || name.size() == kPrefix.size() || name.size() > kPrefix.size() + 18) return -1;
  std::int64_t step = 0;
  for (char c : name.substr(kPrefix.size())) {
    if (c < '0' || c > '9') return -1;
    step = step * 10 + (c - '0');
  }
  return step;
}

// Removes what is older than `step`, and what killed processes left behind.
void remove_old(const fs::path& run, std::int64_t step) {
  std::error_code ignored;
  std::vector<fs::path> old, rubbish;
  for (auto& entry : fs::directory_iterator(run, ignored)) {
    std::int64_t found = step_of(entry.path());
    if (found >= 0 && found < step) old.push_back(entry.path());
    if (entry.path().filename().string().starts_with(".checkpoint-")) rubbish.push_back(entry.path());
  }
  for (auto& folder : old) {  // under another name first, so that a half-removed one is never taken for a checkpoint
    fs::path away = run / ("." + folder.filename().string() + ".old");
    fs::rename(folder, away, ignored);
    rubbish.push_back(away);
  }
  for (auto& folder : rubbish) fs::remove_all(folder, ignored);
}

std::string state_json(const Checkpoint& c) {
  nlohmann::ordered_json state = {{"format", 1},
                                  {"step", c.step},
                                  {"steps", c.steps},
                                  {"next_batch", c.step},
                                  {"seed", c.config.seed},
                                  {"seconds", c.seconds},
                                  {"config", nlohmann::ordered_json::parse(config_json(c.config))}};
  return state.dump(2) + "\n";
}

}  // namespace

void save_checkpoint(const std::string& run, const Checkpoint& c, const Tokenizer& tokenizer) {
  fs::path target = fs::path(run) / fmt::format("{}{:08}", kPrefix, c.step);
  if (fs::exists(target)) return;
  fs::path temporary = fs::path(run) / fmt::format(".{}{:08}.tmp", kPrefix, c.step);
  std::error_code error;
  fs::remove_all(temporary, error);
  try {
    fs::create_directory(temporary);
    save_safetensors(temporary / kWeights, c.weights);
    save_safetensors(temporary / kOptimizer, c.optimizer);
    tokenizer.save(temporary / kTokenizer);
    write_file_atomic(temporary / kState, state_json(c));
    sync_folder(temporary);
    fs::rename(temporary, target);
  } catch (const fs::filesystem_error& failure) {
    fs::remove_all(temporary, error);
    throw DeviceError(fmt::format("cannot write '{}': {}", target.string(), failure.code().message()));
  } catch (...) {
    fs::remove_all(temporary, error);
    throw;
  }
  sync_folder(run);
  remove_old(run, c.step);
}

std::optional<std::string> find_checkpoint(const std::string& run) {
  std::error_code error;
  fs::path best;
  for (auto& entry : fs::directory_iterator(run, error))
    if (std::int64_t step = step_of(entry.path()); step >= 0 && (best.empty() || step > step_of(best)))
      best = entry.path();
  if (best.empty()) return {};
  return best.string();
}

Checkpoint load_checkpoint(const std::string& folder) {
  std::string path = (fs::path(folder) / kState).string();
  Checkpoint c;
  try {
    auto state = nlohmann::ordered_json::parse(read_file(path, 1 << 20));
    if (state.at("format") != 1)
      throw UserError(fmt::format("[checkpoint] {}: got format {}, expected 1", path, state.at("format").dump()));
    c.step = state.at("step");
    c.steps = state.at("steps");
    c.seconds = state.at("seconds");
    c.config = parse_config(state.at("config").dump(), path);
  } catch (const nlohmann::json::exception& error) {
    throw UserError(fmt::format("[checkpoint] {}: not a checkpoint's state: {}", path, error.what()));
  }
  if (c.step < 0 || c.steps < c.step)
    throw UserError(fmt::format("[checkpoint] {}: got step {} of {}", path, c.step, c.steps));
  std::string weights = (fs::path(folder) / kWeights).string();
  c.weights = load_safetensors(weights).tensors;
  check_params(c.config.model, c.weights, weights);
  c.optimizer = load_safetensors((fs::path(folder) / kOptimizer).string()).tensors;
  return c;
}

Tokenizer load_checkpoint_tokenizer(const std::string& folder) {
  return Tokenizer::load((fs::path(folder) / kTokenizer).string());
}

bool is_run(const std::string& folder) { return fs::is_regular_file(fs::path(folder) / "run.json"); }

}  // namespace rlx
