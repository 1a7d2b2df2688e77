// Training: the bitnet language model, training runs, and what a trained model does. Optimizers are in rlx/optim.h.
#pragma once
#include <functional>
#include <memory>

#include "rlx/files.h"
#include "rlx/session.h"

namespace rlx {

// ---------------------------------------------------------------------------------------------- loss scaling

/// How the loss scale moves: times `backoff` after a step whose gradients are not all finite, times `growth` after
/// `growth_interval` good steps in a row, within [least, most]. Powers of 2 make the scaling exact.
struct LossScaling {
  double initial = 65536, growth = 2, backoff = 0.5, least = 1, most = 16777216;
  std::int64_t growth_interval = 2000;
};

/// Dynamic loss scaling as nodes of a training step's graph, for gradients in f16 (Micikevicius and others, 2018):
///
///     LossScaler scaler(graph);
///     Nodes gradients = scaler.unscale(grad(loss, params, scaler.seed(loss)));
///     … clip; updates with StepNodes::step = scaler.step() …
///     for each param and state: its update becomes scaler.guarded(param, next)
///     for (StateNode s : scaler.states()) … carried on like an optimizer's state, without a guard
///
/// A step with a gradient that is not finite then changes nothing but `loss_scale.scale` and `loss_scale.good_steps`:
/// params and moments keep their bits and `loss_scale.step` does not advance. Its three states are f32 [] params that
/// may start at 0 like an optimizer's: a scale of 0 stands for `initial`.
class LossScaler {
 public:
  /// Throws UserError where a number of the config makes no sense or the graph has a leaf of such a name.
  explicit LossScaler(Graph graph, const LossScaling& = {});
  /// f32 []: what this step's loss is multiplied by.
  Node scale() const { return scale_; }
  /// The scale as the cotangent of the loss. Throws UserError where that is f16, which cannot hold it.
  Node seed(Node loss) const;
  /// Gradients over the scale, f16 and bf16 as f32. Call it once, with all of them. Throws UserError on a second call.
  Nodes unscale(const Nodes& gradients);
  /// bool []: whether all gradients are finite. This and what follows are there after `unscale`.
  Node finite() const;
  /// f32 []: this step's number, counted from 1, of the steps that were taken.
  Node step() const;
  /// `next`, or the state as it was where the step is not taken.
  Node guarded(Node state, Node next) const;
  /// loss_scale.scale, loss_scale.good_steps, loss_scale.step, and their values after the step.
  std::vector<StateNode> states() const;

 private:
  LossScaling config_;
  Node state_, scale_, good_steps_, step_, finite_;
};

// ---------------------------------------------------------------------------------------------- the model

/// A transformer of the `bitnet` architecture, as GGUF names its sizes.
struct ModelConfig {
  std::int64_t vocab_size = 2048, context_length = 128, embedding_length = 256, block_count = 4,
               feed_forward_length = 768, head_count = 4, head_count_kv = 4;
  double rope_freq_base = 10000, rms_norm_epsilon = 1e-5;
  std::string activation = "silu";   // or "relu2"
  std::string precision = "bitnet";  // docs/precisions.md lists them
  std::string gradient_format = "f32";  // of what flows back through scaled products; or "e5m2"
  std::int64_t codebook_entry_dim = 4, codebook_entries = 256;

  std::int64_t head_length() const { return embedding_length / head_count; }
};

/// A training run: everything but the text. Its defaults are what `rlx train` uses.
struct TrainConfig {
  ModelConfig model;
  std::string tokenizer = "bpe";  // or "bytes"
  double validation_fraction = 0.03;
  // Each step.
  std::int64_t batch_size = 4, accumulation = 1;  // rows of context_length tokens; batches that make a step
  std::string optimizer = "muon";                 // for the 2-D block weights, adamw for the rest; or one for all
  double learning_rate = 3e-3, muon_learning_rate = 0.02, weight_decay = 0, clip_norm = 1;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, momentum = 0.95;
  std::string muon_scale = "original";
  bool muon_bf16 = false;
  double codebook_after = 0.5;  // in codebook precision: the share of steps that train dense weights first
  // Over the steps.
  std::string schedule = "linear";  // constant, linear, cosine, bitnet
  std::int64_t warmup_steps = 20;
  std::int64_t steps = 0;  // or
  double minutes = 0;      // how long, from which the number of steps follows
  std::uint64_t seed = 1;
  std::int64_t validate_every = 0, checkpoint_every = 0;  // steps; 0: 10 times a run, and every minute
};

/// Reads a config, flat in one JSON object. Throws UserError on an unknown key, a value of another type or one that is
/// not allowed; `where` says in messages where the text came from.
TrainConfig parse_config(std::string_view json, const std::string& where);
TrainConfig load_config(const std::string& path);
/// All keys.
std::string config_json(const TrainConfig&);
/// Throws UserError on the first value that is not allowed.
void check_config(const TrainConfig&, const std::string& where);

// ---------------------------------------------------------------------------------------------- runs

struct TrainOptions {
  Device device = Device::cpu();
  /// Asked after each step; true stops the run once a checkpoint is saved.
  std::function<bool()> interrupted;
};
struct TrainResult {
  std::int64_t step = 0, steps = 0;  // done, of how many
  double loss = 0;                   // of the last step, nats a token
  double val_bits_per_byte = 0;      // of the whole validation text; 0 where the run was interrupted
  double tokens_per_s = 0, seconds = 0;
  std::int64_t params = 0;
  bool interrupted = false;
};

/// Trains on a text file and keeps everything in the folder `run`: run.json, the tokenizer and tokens, metrics.jsonl,
/// loss.svg and the latest checkpoint. Throws UserError where the folder is there and not empty, unless `overwrite`
/// says to replace a run.
TrainResult start_run(const TrainConfig&, const std::string& data, const std::string& run, bool overwrite,
                      const TrainOptions& = {});
/// Goes on where a run stopped, for whatever reason; the result is the uninterrupted run's to the bit.
TrainResult resume_run(const std::string& run, const TrainOptions& = {});

// ---------------------------------------------------------------------------------------------- trained models

struct Evaluation {
  double bits_per_byte = 0, perplexity = 0;  // perplexity a token
  std::int64_t tokens = 0, bytes = 0;
};

struct GenerateOptions {
  std::int64_t tokens = 128;
  double temperature = 0.8;  // 0: always the likeliest token
  std::int64_t top_k = 40;   // 0: no limit
  double top_p = 0.95;       // 1: no limit
  std::uint64_t seed = 1;
};
struct Generation {
  std::vector<std::int32_t> tokens;  // without the prompt's
  double tokens_per_s = 0;           // after the prompt
  std::int64_t prompt_tokens = 0;
};

class Tokenizer;

/// A trained model: a run's latest checkpoint or an exported file. Its forward pass is the one it was trained with.
class LanguageModel {
 public:
  /// A folder is a run, anything else a GGUF file of the `bitnet` architecture or a safetensors file of ours. Throws UserError, Unsupported,
  /// DeviceError.
  static LanguageModel load(const std::string& path, Device device = Device::cpu());
  LanguageModel(ModelConfig, std::shared_ptr<const Tokenizer>, Tensors inference_params, Device);
  LanguageModel(LanguageModel&&) noexcept;
  ~LanguageModel();

  const ModelConfig& config() const;
  const Tokenizer& tokenizer() const;
  /// f32 values, and linear weights in the form of the precision: i8 codes with a f32 [1] `<linear>.scale` in bitnet; u8
  /// codes with `<linear>.block_scale` or `<linear>.scale` in fp8 and so on; `.indices` and `.codebook`.
  const Tensors& params() const;

  /// f32 [tokens, vocab]: what follows each token. Throws UserError where there is no token or one outside the
  /// vocabulary.
  Array logits(std::span<const std::int32_t> tokens);
  /// Scores a text in windows of the context length that overlap by half, so that each token but the first ones is
  /// predicted from at least half a context. The first token costs log2(vocab) bits. Throws UserError on an empty text.
  Evaluation evaluate(std::string_view text);
  /// Continues the prompt. `on_text` gets the text piece by piece, each of whole characters. When the context is full
  /// it goes on from its last half. Equal seeds give equal texts. Throws UserError on an empty prompt or a bad option.
  Generation generate(std::string_view prompt, const GenerateOptions& options,
                      const std::function<void(std::string_view)>& on_text);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct ExportOptions {
  std::string type;       // of the blocks' linear weights; empty: the precision's own (docs/precisions.md)
  std::string embedding;  // of token_embd: f16, bf16, q8_0, f32; empty: q8_0 beside ternary weights, else f32
};
struct ExportedTensor {
  std::string name, type;
  std::int64_t elements = 0, bytes = 0;
  std::int64_t params = 0;  // of the model, that it holds; a scale holds none
  double max_error = 0;     // against the value that the forward pass uses
  double bits_per_weight() const { return 8.0 * double(bytes) / double(elements); }
};
/// Writes one file, atomically, and says what is in it: GGUF that stock llama.cpp loads where GGUF has the type, else
/// safetensors, also where the path ends in .safetensors and the type is scaled. LanguageModel::load reads both. In
/// bitnet precision the blocks hold the ternary codes with a scale of 1, and `<linear>.scale` their scale; scaled
/// weights are the codes and scales that the forward pass uses. Throws UserError, before anything is written, where a
/// width does not suit the type or the model cannot be had in it, Unsupported where llama.cpp would misread it.
std::vector<ExportedTensor> export_model(const LanguageModel&, const std::string& path, const ExportOptions& = {});

}  // namespace rlx
