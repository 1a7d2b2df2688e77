// Every precision: what scores, decodes and is stored is what was trained, and a run that stops anywhere goes on to the
// same bits.
#include "train/precision.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "cli/rlx_program.h"
#include "quant/block_format.h"
#include "train/checkpoint.h"
#include "train/code_blocks.h"
#include "train/config.h"
#include "train/generate.h"
#include "train/model.h"
#include "train/trainer.h"

using namespace rlx;
namespace fs = std::filesystem;

namespace {

ModelConfig tiny(const std::string& precision) {
  return {.vocab_size = 260,
          .context_length = 12,
          .embedding_length = 64,
          .block_count = 2,
          .feed_forward_length = 128,
          .head_count = 2,
          .head_count_kv = 1,
          .precision = precision,
          .codebook_entries = 16};
}

Tensors trained_weights(const ModelConfig& c) {
  ModelConfig dense = c;
  dense.precision = "f32";
  Tensors out = init_params(dense, 3);
  for (auto& [name, value] : out)
    if (value.shape().size() == 2)
      for (float& v : value.values<float>()) v *= 10;
  return weight_form(c) == WeightForm::Codebook ? to_codebook_params(c, out, 1) : out;
}

Array some_tokens(Extents shape) {
  Array out(DType::I32, std::move(shape));
  PhiloxStream random(5, 5);
  for (auto& t : out.values<std::int32_t>()) t = std::int32_t(random.next_below(260));
  return out;
}

CompiledGraph with_params(const Graph& graph, const Tensors& params, Device device = Device::cpu()) {
  CompiledGraph out = Session(std::move(device)).compile(graph);
  for (auto& [name, value] : params) out.set_param(name, value);
  return out;
}

std::string name_of(const testing::TestParamInfo<std::string>& info) { return info.param; }
class Precisions : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Precisions, testing::ValuesIn(precision_names()), name_of);

}  // namespace

TEST_P(Precisions, TheInferenceFormIsWhatTrained) {
  ModelConfig c = tiny(GetParam());
  Tensors weights = trained_weights(c), params = inference_params(c, weights);
  check_params(c, weights, "here");
  Array tokens = some_tokens({2, 13});
  double trained = with_params(training_graph(c, 2, 12), weights).run({{"tokens", tokens}})[0].at(0);
  Array scores = with_params(score_graph(c), params).run({{"tokens", tokens}})[0];
  double mean = 0;
  for (std::int64_t i = 0; i < scores.size(); ++i) mean += scores.at(i) / double(scores.size());
  EXPECT_NEAR(mean, trained, 1e-5 * trained);
}

TEST_P(Precisions, DecodingOneByOneGivesTheLogitsOfTheWhole) {
  ModelConfig c = tiny(GetParam());
  Tensors params = inference_params(c, trained_weights(c));
  Array tokens = some_tokens({10});
  Array whole = with_params(logits_graph(c), params).run({{"tokens", tokens}})[0];
  Decoder decoder(c, params, Device::cpu(), 12);
  double dot = 0, a = 0, b = 0;
  for (std::int64_t i = 0; i < 10; ++i) {
    Array row = decoder.read(tokens.values<std::int32_t>()[std::size_t(i)]);
    for (std::int64_t v = 0; v < c.vocab_size; ++v) {
      double x = row.at(v), y = whole.at(i * c.vocab_size + v);
      dot += x * y, a += x * x, b += y * y;
    }
  }
  // A scale of all activations is another one for one token, which 4 bits feel; all else rounds alike.
  EXPECT_GT(dot / std::sqrt(a * b), GetParam() == "nvfp4" ? 0.85 : GetParam() == "fp8" ? 0.95 : 0.9999);
}

TEST_P(Precisions, TheLossFalls) {
  TrainConfig config;
  config.model = tiny(GetParam());
  config.batch_size = 2;
  config.warmup_steps = 0;
  config.model.gradient_format =
      weight_form(config.model) == WeightForm::Scaled && GetParam() != "nvfp4" ? "e5m2" : "f32";
  Trainer trainer(config, Device::cpu());
  Tensors weights = init_params(config.model, 1);
  trainer.set_weights(weight_form(config.model) == WeightForm::Codebook ? to_codebook_params(config.model, weights, 1)
                                                                        : weights);
  trainer.set_optimizer({}, "");
  Array tokens = some_tokens({2, 13});
  double first = trainer.run_step(tokens, 0, 1000).loss, last = 0;
  EXPECT_NEAR(first, std::log(260), 0.1);
  for (int step = 1; step < 20; ++step) last = trainer.run_step(tokens, step, 1000).loss;
  EXPECT_LT(last, 0.8 * first);
}

// ---------------------------------------------------------------------------------------------- runs and files

namespace {

TrainConfig run_config(const std::string& precision) {
  TrainConfig c;
  c.model = tiny(precision);
  c.tokenizer = "bytes";
  c.batch_size = 2;
  c.steps = 6;
  c.warmup_steps = 1;
  return c;
}

void run_to_the_end(const TrainConfig& config, const std::string& text, const std::string& run, int stop_after) {
  int steps = 0;
  TrainOptions options{.interrupted = [&] { return ++steps == stop_after; }};
  TrainResult result = start_run(config, text, run, false, options);
  while (result.interrupted) {
    EXPECT_EQ(result.step, stop_after);
    result = resume_run(run);
  }
  EXPECT_EQ(result.step, config.steps);
}

// Stopped after each of these numbers of steps.
void expect_same_end(const TrainConfig& config, std::initializer_list<int> stops) {
  test::TemporaryFolder folder;
  std::string text = folder / "text.txt";
  test::write(text, test::some_text());
  run_to_the_end(config, text, folder / "whole", 0);
  for (int stop : stops) {
    std::string run = folder / std::to_string(stop);
    run_to_the_end(config, text, run, stop);
    for (auto file : {"weights.safetensors", "optimizer.safetensors"})
      EXPECT_TRUE(test::contents(fs::path(run) / "checkpoint-00000006" / file) ==
                  test::contents(fs::path(folder / "whole") / "checkpoint-00000006" / file))
          << file << " after stopping at " << stop;
  }
}

}  // namespace

TEST_P(Precisions, AnInterruptedRunEndsTheSame) {
  expect_same_end(run_config(GetParam()), {2, 3, 4});  // with codebooks: before, at and after the change
}

TEST(Optimizers, EachLearnsAndResumes) {
  for (auto& name : optimizer_names()) {
    SCOPED_TRACE(name);
    TrainConfig config = run_config("f32");
    config.optimizer = name;
    config.learning_rate = name == "sgd" ? 0.3 : name == "lion" ? 1e-3 : 0.01;
    expect_same_end(config, {3});
    Trainer trainer(config, Device::cpu());
    trainer.set_weights(init_params(config.model, 1));
    trainer.set_optimizer({}, "");
    Array tokens = some_tokens({2, 13});
    double first = trainer.run_step(tokens, 0, 1000).loss, last = 0;
    for (int step = 1; step < 30; ++step) last = trainer.run_step(tokens, step, 1000).loss;
    EXPECT_LT(last, 0.95 * first);
  }
}

TEST_P(Precisions, AnExportedFileIsTheModel) {
  test::TemporaryFolder folder;
  std::string text = folder / "text.txt", run = folder / "run";
  test::write(text, test::some_text());
  TrainConfig config = run_config(GetParam());
  config.model.embedding_length = config.model.feed_forward_length = 256;  // which every type can hold
  config.model.block_count = 1;
  start_run(config, text, run, false);
  LanguageModel trained = LanguageModel::load(run);
  Evaluation expected = trained.evaluate(test::some_text(5));
  auto& p = precision(GetParam());
  std::vector<std::string> endings{""};
  if (p.form == WeightForm::Scaled) endings = {".safetensors"};
  if (p.name == "mxfp4" || p.name == "nvfp4") endings.push_back(".gguf");
  for (auto& ending : endings) {
    std::string file = folder / ("model" + (ending == "" && p.name == "codebook" ? ".safetensors" : ending));
    auto rows = export_model(trained, file, {.type = "", .embedding = "f32"});
    std::int64_t params = 0;
    for (auto& r : rows) {
      params += r.params;
      EXPECT_TRUE(p.form == WeightForm::Dense || r.max_error == 0) << r.name;
    }
    EXPECT_EQ(params, count_params(config.model));
    LanguageModel loaded = LanguageModel::load(file);
    EXPECT_EQ(loaded.evaluate(test::some_text(5)).bits_per_byte, expected.bits_per_byte) << file;
    if (p.form == WeightForm::Scaled) {  // `rlx quantize` reads it, whichever format it is in
      Array weight = load_values(file).at("blk.0.attn_q.weight");
      EXPECT_EQ(weight.type(), (Type{DType::F32, {256, 256}})) << file;
    }
    if (p.form != WeightForm::Dense) {
      ASSERT_EQ(loaded.params().size(), trained.params().size());
      for (auto& [name, value] : trained.params()) EXPECT_TRUE(identical(loaded.params().at(name), value)) << name;
    }
  }
}

// The blocks mean to GGUF's decoder, which is checked with the gguf package, what code and scale mean.
TEST(CodeFiles, Fp4BlocksDecodeToCodeTimesScale) {
  constexpr float kValues[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
  for (bool is_nvfp4 : {false, true}) {
    Fp4Layout layout = is_nvfp4 ? Fp4Layout{16, 4} : Fp4Layout{32, 1};
    BlockCodes from{Array(DType::U8, {2, 128}), Array(DType::U8, {2, 128 / layout.block})};
    PhiloxStream random(1, 2);
    for (auto& c : from.codes.values<std::uint8_t>()) c = std::uint8_t(random.next_below(16));
    for (auto& s : from.scales.values<std::uint8_t>()) s = std::uint8_t(100 + random.next_below(20));
    auto bytes = to_fp4_blocks(from, layout);
    BlockCodes back = from_fp4_blocks(bytes, {2, 128}, layout);
    EXPECT_TRUE(identical(back.codes, from.codes));
    EXPECT_TRUE(identical(back.scales, from.scales));
    std::vector<float> values(256);
    decode(block_format(is_nvfp4 ? "nvfp4" : "mxfp4"), bytes, values, "w");
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint8_t code = from.codes.values<std::uint8_t>()[i];
      int scale = from.scales.values<std::uint8_t>()[i / std::size_t(layout.block)];
      double factor = is_nvfp4 ? std::ldexp(1 + (scale & 7) / 8.0, (scale >> 3) - 7) : std::ldexp(1.0, scale - 127);
      ASSERT_EQ(values[i], float((code & 8 ? -1 : 1) * kValues[code & 7] * factor)) << is_nvfp4 << " " << i;
    }
  }
}

// With the largest scale every gradient of f16 overflows.
TEST(LossScalingOfRuns, AStepThatOverflowsChangesOnlyTheScale) {
  TrainConfig config;
  config.model = tiny("f16");
  config.batch_size = 2;
  Trainer trainer(config, Device::cpu());
  trainer.set_weights(init_params(config.model, 1));
  trainer.set_optimizer({}, "");
  Tensors states = trainer.optimizer();
  states["loss_scale.scale"] = Array::scalar(16777216, DType::F32);
  trainer.set_optimizer(states, "");
  Tensors before = trainer.weights();
  StepResult result = trainer.run_step(some_tokens({2, 13}), 0, 10);
  EXPECT_FALSE(std::isfinite(result.gradient_norm));
  EXPECT_NEAR(result.loss, std::log(260), 0.1);
  for (auto& [name, value] : trainer.weights()) EXPECT_TRUE(identical(value, before.at(name))) << name;
  for (auto& [name, value] : trainer.optimizer()) {
    if (name == "loss_scale.scale")
      EXPECT_EQ(value.at(0), 8388608);
    else
      EXPECT_TRUE(identical(value, states.at(name))) << name;
  }
}
