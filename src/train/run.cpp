// Training runs: a folder from its first line to its last checkpoint.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/file.h"
#include "base/progress.h"
#include "train/checkpoint.h"
#include "train/data.h"
#include "train/loss_chart.h"
#include "train/metrics.h"
#include "train/score.h"
#include "train/trainer.h"

namespace rlx {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kDefaultSteps = 1000;
constexpr std::int64_t kQuickTokens = 4096;  // of the validation text, scored during a run
constexpr double kCheckpointSeconds = 60;    // where the config gives no number of steps

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct RunFile {
  std::string data;
  TrainConfig config;
};

void save_run_file(const std::string& run, const RunFile& r) {
  Json file = {{"data", r.data}, {"config", Json::parse(config_json(r.config))}};
  write_file_atomic(run + "/run.json", file.dump(2) + "\n");
}

RunFile load_run_file(const std::string& run) {
  std::string path = run + "/run.json";
  if (!is_run(run)) throw UserError(fmt::format("[train] '{}' is no run: it has no run.json", run));
  try {
    Json file = Json::parse(read_file(path, 1 << 20));
    return {file.at("data").get<std::string>(), parse_config(file.at("config").dump(), path)};
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("[train] {}: not a run file: {}", path, error.what()));
  }
}

// Whether there is nothing, or only what a process left that was killed on its first line.
bool is_as_good_as_empty(const std::string& folder) {
  for (auto& entry : fs::directory_iterator(folder))
    if (!entry.path().filename().string().starts_with("run.json.tmp-")) return false;
  return true;
}

void remove_contents(const std::string& folder) {
  for (auto& entry : fs::directory_iterator(folder)) fs::remove_all(entry.path());
}

// What one form of the weights is trained with: a codebook run has two, dense weights and then codebooks.
struct Phase {
  Phase(const TrainConfig& c, const Device& device) : config(c), trainer(c, device), scorer(c.model, device) {}
  const TrainConfig config;
  Trainer trainer;
  Scorer scorer;
};

// Removes a run; refuses folders that are not one.
void clear_run_folder(const std::string& run, bool overwrite) {
  if (!fs::exists(run)) return;
  if (!fs::is_directory(run)) throw UserError(fmt::format("[train] '{}' is there and is no folder", run));
  if (is_as_good_as_empty(run)) return remove_contents(run);
  if (!overwrite)
    throw UserError(
        fmt::format("[train] '{}' is there already: go on with --resume {}, or replace it with --overwrite", run, run));
  if (!is_run(run)) throw UserError(fmt::format("[train] '{}' is not empty and no run: not overwritten", run));
  fs::rename(run + "/run.json", run + "/run.json.tmp-old");  // half removed, it is no run any more
  remove_contents(run);
}

class Run {
 public:
  Run(std::string folder, TrainConfig config, TextData data, const TrainOptions& options)
      : folder_(std::move(folder)),
        config_(std::move(config)),
        data_(std::move(data)),
        options_(options),
        sampler_(data_.train, config_.model.context_length, config_.seed),
        metrics_(folder_ + "/metrics.jsonl") {}

  void start(Clock::time_point command_start);
  void resume(const Checkpoint&, const std::string& folder);
  TrainResult train();

 private:
  Array batch(std::int64_t step) { return sampler_.batch(step, config_.batch_size * config_.accumulation); }
  std::int64_t tokens_a_step() const {
    return config_.batch_size * config_.accumulation * config_.model.context_length;
  }
  void enter_phase(const Tensors& weights, const Tensors& optimizer, const std::string& where);
  bool is_dense_phase() const { return phase_->config.model.precision != config_.model.precision; }
  std::int64_t codebook_step() const { return std::int64_t(config_.codebook_after * double(steps_)); }
  void to_codebooks();
  double validate(std::int64_t tokens);
  double time_steps(std::int64_t& step);
  std::int64_t measure_steps(Clock::time_point command_start, const Tensors& weights);
  void save();
  void train_step();
  void show(Progress&);
  double elapsed() const { return before_ + seconds_since(begin_); }

  std::string folder_;
  const TrainConfig config_;
  const TextData data_;
  const TrainOptions& options_;
  BatchSampler sampler_;
  std::optional<Phase> phase_;
  MetricsFile metrics_;

  std::int64_t step_ = 0, steps_ = 0, saved_step_ = -1;
  double before_ = 0;  // seconds before this process
  Clock::time_point begin_ = Clock::now(), saved_at_ = Clock::now();
  double loss_ = 0, val_bits_ = 0, tokens_per_s_ = 0;
};

// No optimizer's states: those from before the first step.
void Run::enter_phase(const Tensors& weights, const Tensors& optimizer, const std::string& where) {
  TrainConfig c = config_;
  c.model = phase_of(c.model, weights);
  if (!phase_ || phase_->config.model.precision != c.model.precision) phase_.emplace(c, options_.device);
  phase_->trainer.set_weights(weights);
  phase_->trainer.set_optimizer(optimizer, where);
}

// The params that stay keep their optimizer's states; a codebook starts without.
void Run::to_codebooks() {
  Tensors before = phase_->trainer.optimizer(), states;
  enter_phase(to_codebook_params(config_.model, phase_->trainer.weights(), config_.seed), {}, "");
  for (auto& [name, value] : phase_->trainer.optimizer()) {
    auto kept = before.find(name);
    states.emplace(name, kept == before.end() ? value : kept->second);
  }
  phase_->trainer.set_optimizer(states, "");
}

double Run::validate(std::int64_t tokens) {
  phase_->scorer.set_params(inference_params(phase_->config.model, phase_->trainer.weights()));
  auto text = std::span(data_.validation).first(std::size_t(std::min(tokens, std::int64_t(data_.validation.size()))));
  std::int64_t bytes = data_.validation_bytes;
  if (text.size() < data_.validation.size()) {
    bytes = 0;
    for (auto token : text) bytes += std::int64_t(data_.tokenizer.text_of(token).size());
  }
  return phase_->scorer.nats(text, config_.model.context_length) / std::numbers::ln2 / double(bytes);
}

// Seconds a step, from a few of them.
double Run::time_steps(std::int64_t& step) {
  auto take = [&] { phase_->trainer.run_step(batch(step), step, kDefaultSteps), ++step; };
  take(), take();
  auto start = Clock::now();
  std::int64_t count = 0;
  while (count < 3 || (seconds_since(start) < 4 && count < 50)) {
    take(), ++count;
    if (options_.interrupted && options_.interrupted()) break;
  }
  return seconds_since(start) / double(count);
}

// How many steps fit into the time asked for, from the first ones of each phase, which are then undone.
std::int64_t Run::measure_steps(Clock::time_point command_start, const Tensors& weights) {
  std::int64_t step = 0;
  double a_step = time_steps(step), between = 0;
  if (is_dense_phase()) {
    auto start = Clock::now();
    to_codebooks();
    between = seconds_since(start);
    a_step = config_.codebook_after * a_step + (1 - config_.codebook_after) * time_steps(step);
  }
  validate(kQuickTokens);  // the first one may compile
  auto start = Clock::now();
  validate(kQuickTokens);
  double quick = seconds_since(start), whole = quick * double(data_.validation.size()) / double(kQuickTokens);
  enter_phase(weights, {}, "");
  double left = config_.minutes * 60 - seconds_since(command_start) - between - 10 * quick - whole - 2;
  return std::max<std::int64_t>(1, std::int64_t(left / a_step));
}

void Run::start(Clock::time_point command_start) {
  Tensors weights = init_params(config_.model, config_.seed);
  enter_phase(weights, {}, "");
  steps_ = config_.minutes > 0 ? measure_steps(command_start, weights) : config_.steps ? config_.steps : kDefaultSteps;
  metrics_.start();
  begin_ = Clock::now();
  save();
}

void Run::resume(const Checkpoint& c, const std::string& folder) {
  enter_phase(c.weights, c.optimizer, folder + "/optimizer.safetensors");
  step_ = saved_step_ = c.step;
  steps_ = c.steps;
  before_ = c.seconds;
  metrics_.resume(c.step);
  if (!metrics_.points().empty()) loss_ = metrics_.points().back().loss;
}

void Run::save() {
  if (step_ == saved_step_) return;
  save_checkpoint(folder_,
                  {.step = step_,
                   .steps = steps_,
                   .seconds = elapsed(),
                   .config = config_,
                   .weights = phase_->trainer.weights(),
                   .optimizer = phase_->trainer.optimizer()},
                  data_.tokenizer);
  saved_step_ = step_;
  saved_at_ = Clock::now();
}

void Run::train_step() {
  auto start = Clock::now();
  StepResult result = phase_->trainer.run_step(batch(step_), step_, steps_);
  // With loss scaling a gradient that overflows lowers the scale, and the step is left out.
  bool scales_loss = precision(config_.model.precision).scales_loss;
  if (!std::isfinite(result.loss) || (!scales_loss && !std::isfinite(result.gradient_norm)))
    throw UserError(
        fmt::format("[train] the loss or its gradient is not a number at step {}; a checkpoint of step {} is kept. "
                    "A lower learning rate may help",
                    step_ + 1, saved_step_));
  loss_ = result.loss;
  double rate = double(tokens_a_step()) / seconds_since(start);
  tokens_per_s_ = tokens_per_s_ == 0 ? rate : 0.95 * tokens_per_s_ + 0.05 * rate;
  Metric metric{.step = step_ + 1,
                .loss = loss_,
                .learning_rate = phase_->trainer.learning_rate_at(step_, steps_),
                .val_bits_per_byte = {},
                .tokens_per_s = rate,
                .seconds = 0};
  ++step_;
  std::int64_t every = config_.validate_every ? config_.validate_every : std::max<std::int64_t>(1, steps_ / 10);
  if (step_ == steps_)
    metric.val_bits_per_byte = val_bits_ = validate(std::int64_t(data_.validation.size()));
  else if (step_ % every == 0)
    metric.val_bits_per_byte = val_bits_ = validate(kQuickTokens);
  metric.seconds = elapsed();
  metrics_.add(metric);
}

void Run::show(Progress& progress) {
  if (!progress.is_due()) return;
  double left = double((steps_ - step_) * tokens_a_step()) / std::max(1.0, tokens_per_s_);
  std::string bits = val_bits_ > 0 ? fmt::format(" · {:.3f} bits per byte", val_bits_) : "";
  progress.update(fmt::format("step {}/{} · loss {:.4f}{} · {:.0f} tokens/s · {} left", step_, steps_, loss_, bits,
                              tokens_per_s_, format_duration(left)));
}

TrainResult Run::train() {
  Progress progress;
  TrainResult out{.steps = steps_, .params = count_params(config_.model)};
  auto begin = Clock::now();
  std::int64_t first = step_;
  while (step_ < steps_) {
    if (is_dense_phase() && step_ >= codebook_step()) {
      progress.note(fmt::format("step {}/{} · the weights become codebooks", step_, steps_));
      to_codebooks();
    }
    train_step();
    bool due = config_.checkpoint_every ? step_ % config_.checkpoint_every == 0
                                        : seconds_since(saved_at_) > kCheckpointSeconds;
    out.interrupted = options_.interrupted && options_.interrupted() && step_ < steps_;
    if (due || out.interrupted || step_ == steps_) save();
    show(progress);
    if (out.interrupted) break;
  }
  progress.finish();
  double seconds = seconds_since(begin);
  metrics_.flush();
  write_file_atomic(folder_ + "/loss.svg", loss_chart(metrics_.points(), fs::path(folder_).filename().string()));
  if (step_ == steps_ && first == steps_) val_bits_ = validate(std::int64_t(data_.validation.size()));
  out.step = step_;
  out.loss = loss_;
  out.val_bits_per_byte = step_ == steps_ ? val_bits_ : 0;
  out.seconds = elapsed();
  out.tokens_per_s = step_ > first ? double((step_ - first) * tokens_a_step()) / seconds : 0;
  return out;
}

// From run.json alone, wherever the last process stopped.
TrainResult go_on(const std::string& run, const TrainOptions& options, Clock::time_point command_start) {
  RunFile file = load_run_file(run);
  auto folder = find_checkpoint(run);
  std::optional<Checkpoint> checkpoint;
  if (folder) {
    checkpoint = load_checkpoint(*folder);
    file.config = checkpoint->config;
  }
  DataOptions data{file.config.tokenizer, int(file.config.model.vocab_size), file.config.validation_fraction};
  bool prepared = fs::exists(run + "/data.json");
  TextData text = prepared ? load_data(run) : prepare_data(file.data, data, run);
  if (folder && load_checkpoint_tokenizer(*folder).vocabulary() != text.tokenizer.vocabulary())
    throw UserError(fmt::format("[train] {}/tokenizer.json is another tokenizer than the run's", *folder));
  Run state(run, file.config, std::move(text), options);
  if (checkpoint)
    state.resume(*checkpoint, *folder);
  else
    state.start(command_start);
  return state.train();
}

std::string trimmed(std::string run) {
  while (run.size() > 1 && run.back() == '/') run.pop_back();
  return run;
}

}  // namespace

TrainResult start_run(const TrainConfig& config, const std::string& data, const std::string& run_folder, bool overwrite,
                      const TrainOptions& options) {
  auto start = Clock::now();
  std::string run = trimmed(run_folder);
  check_config(config, run);
  split_text(read_text(data), config.validation_fraction);  // refuses bad text before a folder is made or removed
  try {
    clear_run_folder(run, overwrite);
    fs::create_directories(run);
  } catch (const fs::filesystem_error& error) {
    throw DeviceError(fmt::format("cannot write '{}': {}", run, error.code().message()));
  }
  try {
    save_run_file(run, {fs::absolute(data).string(), config});
    return go_on(run, options, start);
  } catch (...) {
    std::error_code ignored;  // what never had a checkpoint is no run to keep
    if (!find_checkpoint(run)) fs::remove_all(run, ignored);
    throw;
  }
}

TrainResult resume_run(const std::string& run, const TrainOptions& options) {
  return go_on(trimmed(run), options, Clock::now());
}

}  // namespace rlx
