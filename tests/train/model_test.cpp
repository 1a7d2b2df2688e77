// The model's graphs against each other: what trains, what scores and what decodes are one function.
#include "train/model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "train/generate.h"
#include "train/score.h"
#include "train/tokenizer.h"
#include "train/trainer.h"

using namespace rlx;

namespace {

ModelConfig tiny(const std::string& precision = "bitnet", const std::string& activation = "silu") {
  return {.vocab_size = 40,
          .context_length = 12,
          .embedding_length = 16,
          .block_count = 2,
          .feed_forward_length = 24,
          .head_count = 4,
          .head_count_kv = 2,
          .activation = activation,
          .precision = precision};
}

// Weights larger than at the start of training, so that differences show.
Tensors weights_of(const ModelConfig& c, std::uint64_t seed = 3) {
  Tensors out = init_params(c, seed);
  for (auto& [name, value] : out)
    if (value.shape().size() == 2)
      for (float& v : value.values<float>()) v *= 20;
  return out;
}

std::vector<std::int32_t> some_tokens(std::int64_t n, std::int64_t vocab) {
  std::vector<std::int32_t> out;
  PhiloxStream random(5, 5);
  for (std::int64_t i = 0; i < n; ++i) out.push_back(std::int32_t(random.next_below(std::uint64_t(vocab))));
  return out;
}

CompiledGraph with_params(const Graph& graph, const Tensors& params) {
  CompiledGraph out = Session(Device::reference()).compile(graph);
  for (auto& [name, value] : params) out.set_param(name, value);
  return out;
}

double largest_difference(const Array& a, const Array& b) {
  EXPECT_EQ(a.shape(), b.shape());
  double out = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) out = std::max(out, std::abs(a.at(i) - b.at(i)));
  return out;
}

TrainConfig training(const ModelConfig& model, const std::string& optimizer) {
  TrainConfig c;
  c.model = model;
  c.optimizer = optimizer;
  c.batch_size = 2;
  c.warmup_steps = 0;
  return c;
}

}  // namespace

TEST(Model, ParamsOfTheDefaultModel) {
  ModelConfig c;
  EXPECT_EQ(count_params(c), 2048 * 256 + 4 * (4 * 256 * 256 + 3 * 256 * 768 + 3 * 256 + 768) + 256);
  auto params = init_params(c, 1);
  EXPECT_EQ(params.size(), 2u + 4 * 11);
  check_params(c, params, "test");
  double sum = 0, squares = 0;
  auto w = params.at("blk.1.attn_q.weight").values<float>();
  for (float v : w) sum += v, squares += double(v) * v;
  double n = double(w.size());
  EXPECT_NEAR(sum / n, 0, 4 * 0.02 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 1e-4);
  EXPECT_EQ(params.at("output_norm.weight").at(7), 1);
  EXPECT_TRUE(identical(params.at("blk.0.ffn_up.weight"), init_params(c, 1).at("blk.0.ffn_up.weight")));
  EXPECT_FALSE(identical(params.at("blk.0.ffn_up.weight"), init_params(c, 2).at("blk.0.ffn_up.weight")));
  EXPECT_FALSE(identical(params.at("blk.0.ffn_up.weight"), params.at("blk.1.ffn_up.weight")));
}

TEST(Model, WrongParamsAreRefused) {
  ModelConfig c = tiny();
  auto message = [&](const Tensors& t) -> std::string {
    try {
      check_params(c, t, "here");
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  Tensors t = init_params(c, 1);
  EXPECT_EQ(message(t), "");
  t["extra"] = Array::scalar(1, DType::F32);
  EXPECT_EQ(message(t), "[model] here: unknown tensor \"extra\"");
  t.erase("extra");
  t["output_norm.weight"] = Array(DType::F32, {15});
  EXPECT_EQ(message(t), "[model] here: tensor \"output_norm.weight\" is f32[15], expected f32[16]");
  t.erase("output_norm.weight");
  EXPECT_EQ(message(t), "[model] here: tensor \"output_norm.weight\" is missing");
}

TEST(Model, AnUntrainedModelGuessesEvenly) {
  ModelConfig c = tiny();
  CompiledGraph loss = with_params(training_graph(c, 2, 12), init_params(c, 1));
  auto tokens = some_tokens(2 * 13, c.vocab_size);
  EXPECT_NEAR(loss.run({{"tokens", Array(tokens, {2, 13})}})[0].at(0), std::log(40.0), 0.05);
}

TEST(Model, TheInferenceFormIsWhatTrained) {
  for (auto [precision, activation] : {std::pair{"bitnet", "silu"}, {"bitnet", "relu2"}, {"f32", "silu"}}) {
    ModelConfig c = tiny(precision, activation);
    Tensors master = weights_of(c), params = inference_params(c, master);
    EXPECT_EQ(params.size(), master.size() + (c.precision == "bitnet" ? 14 : 0));
    Array tokens(some_tokens(2 * 13, c.vocab_size), {2, 13});
    double trained = with_params(training_graph(c, 2, 12), master).run({{"tokens", tokens}})[0].at(0);
    Array scores = with_params(score_graph(c), params).run({{"tokens", tokens}})[0];
    double mean = 0;
    for (std::int64_t i = 0; i < scores.size(); ++i) mean += scores.at(i) / double(scores.size());
    EXPECT_NEAR(mean, trained, 1e-5 * trained) << precision << " " << activation;
  }
}

TEST(Model, DecodingOneByOneGivesTheLogitsOfTheWhole) {
  for (auto precision : {"bitnet", "f32"}) {
    ModelConfig c = tiny(precision);
    Tensors params = inference_params(c, weights_of(c));
    auto tokens = some_tokens(10, c.vocab_size);
    Array whole = with_params(logits_graph(c), params).run({{"tokens", Array(tokens, {10})}})[0];
    Decoder decoder(c, params, Device::reference(), 12);
    for (int round = 0; round < 2; ++round) {  // the second over what the first left in the cache
      decoder.reset();
      for (std::int64_t i = 0; i < 10; ++i) {
        Array row = decoder.read(tokens[std::size_t(i)]);
        for (std::int64_t v = 0; v < c.vocab_size; ++v)
          ASSERT_NEAR(row.at(v), whole.at(i * c.vocab_size + v), 2e-4) << precision << ", token " << i;
      }
    }
    decoder.read(1), decoder.read(2);
    EXPECT_THROW(decoder.read(3), UserError);
  }
}

TEST(Model, WindowsScoreEachTokenOnce) {
  ModelConfig c = tiny("f32");
  Tensors params = inference_params(c, weights_of(c));
  Scorer scorer(c, Device::reference());
  scorer.set_params(params);
  auto tokens = some_tokens(31, c.vocab_size);
  // By hand: each token from as many before it as its window holds, with windows of 8 every 4.
  CompiledGraph score = with_params(score_graph(c), params);
  auto nats = [&](std::int64_t target, std::int64_t start) {
    std::vector<std::int32_t> row(tokens.begin() + start, tokens.begin() + target + 1);
    auto n = std::int64_t(row.size());
    return score.run({{"tokens", Array(row, {1, n})}})[0].at(n - 2);
  };
  double expected = std::log(40.0);
  for (std::int64_t target = 1; target <= 30; ++target) {
    std::int64_t start = target <= 8 ? 0 : std::min<std::int64_t>((target - 8 + 3) / 4 * 4, 30 - 8);
    expected += nats(target, start);
  }
  EXPECT_NEAR(scorer.nats(tokens, 8), expected, 1e-4);
  EXPECT_NEAR(scorer.nats(std::span(tokens).first(1), 8), std::log(40.0), 1e-12);
  EXPECT_THROW(scorer.nats({}, 8), UserError);
}

TEST(Training, TheLossFalls) {
  for (auto optimizer : {"adamw", "muon"}) {
    TrainConfig c = training(tiny(), optimizer);
    Trainer trainer(c, Device::reference());
    trainer.set_weights(init_params(c.model, 1));
    trainer.set_optimizer({}, "");
    Array tokens(some_tokens(2 * 13, c.model.vocab_size), {2, 13});
    double first = trainer.run_step(tokens, 0, 1000).loss, last = 0;
    for (int step = 1; step < 25; ++step) last = trainer.run_step(tokens, step, 1000).loss;
    EXPECT_LT(last, 0.8 * first) << optimizer;
  }
}

TEST(Training, AccumulatedBatchesAreOneLargeBatch) {
  TrainConfig whole = training(tiny("f32"), "adamw"), parts = whole;
  whole.batch_size = 4;
  parts.accumulation = 2;
  Tensors weights[2];
  StepResult results[2];
  for (int i = 0; i < 2; ++i) {
    const TrainConfig& c = i ? parts : whole;
    Trainer trainer(c, Device::reference());
    trainer.set_weights(weights_of(c.model));
    trainer.set_optimizer({}, "");
    for (int step = 0; step < 2; ++step)
      results[i] = trainer.run_step(Array(some_tokens(4 * 13, 40), {4, 13}), step, 10);
    weights[i] = trainer.weights();
  }
  EXPECT_NEAR(results[0].loss, results[1].loss, 1e-5);
  EXPECT_NEAR(results[0].gradient_norm, results[1].gradient_norm, 1e-4 * results[0].gradient_norm);
  for (auto& [name, value] : weights[0]) EXPECT_LT(largest_difference(value, weights[1].at(name)), 2e-4) << name;
}

TEST(Training, OnlyLinearWeightsDecay) {
  TrainConfig c = training(tiny(), "adamw");
  c.weight_decay = 0.5;
  Tensors moved[2];
  for (int i = 0; i < 2; ++i) {
    c.weight_decay = i ? 0.5 : 0;
    Trainer trainer(c, Device::reference());
    trainer.set_weights(weights_of(c.model));
    trainer.set_optimizer({}, "");
    trainer.run_step(Array(some_tokens(2 * 13, 40), {2, 13}), 0, 10);
    moved[i] = trainer.weights();
  }
  for (auto& p : model_params(c.model))
    EXPECT_EQ(identical(moved[0].at(p.name), moved[1].at(p.name)), !p.is_linear) << p.name;
}

TEST(Training, StatesOfAnotherModelAreRefused) {
  TrainConfig c = training(tiny(), "muon");
  Trainer trainer(c, Device::reference());
  trainer.set_weights(init_params(c.model, 1));
  trainer.set_optimizer({}, "");
  Tensors states = trainer.optimizer();
  trainer.set_optimizer(states, "x");
  states["adamw.m.none"] = Array::scalar(0, DType::F32);
  EXPECT_THROW(trainer.set_optimizer(states, "x"), UserError);
  states.erase("adamw.m.none");
  states["muon.m.blk.0.attn_q.weight"] = Array(DType::F32, {3});
  EXPECT_THROW(trainer.set_optimizer(states, "x"), UserError);
  states.erase("muon.m.blk.0.attn_q.weight");
  EXPECT_THROW(trainer.set_optimizer(states, "x"), UserError);
}

// ---------------------------------------------------------------------------------------------- sampling

TEST(Sampling, ZeroTemperatureTakesTheLikeliest) {
  std::vector<float> logits{0.1f, 2, 2, -1};
  PhiloxStream random(1, 1);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(sample_token(logits, {.temperature = 0}, random), 1);
}

TEST(Sampling, FollowsTheDistribution) {
  std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  auto shares = [&](const GenerateOptions& options) {
    PhiloxStream random(9, 1);
    std::vector<double> out(3);
    for (int i = 0; i < 20000; ++i) out[std::size_t(sample_token(logits, options, random))] += 1 / 20000.0;
    return out;
  };
  auto all = shares({.temperature = 1, .top_k = 0, .top_p = 1});
  EXPECT_NEAR(all[0], 0.5, 0.015);
  EXPECT_NEAR(all[2], 0.2, 0.015);
  auto two = shares({.temperature = 1, .top_k = 2, .top_p = 1});
  EXPECT_NEAR(two[0], 5.0 / 8, 0.015);
  EXPECT_EQ(two[2], 0);
  auto nucleus = shares({.temperature = 1, .top_k = 0, .top_p = 0.7});
  EXPECT_NEAR(nucleus[1], 3.0 / 8, 0.015);
  EXPECT_EQ(nucleus[2], 0);
  auto sharp = shares({.temperature = 0.5, .top_k = 0, .top_p = 1});
  EXPECT_NEAR(sharp[0], 0.25 / 0.38, 0.015);
}

TEST(Sampling, NaNIsAnError) {
  std::vector<float> logits{0, NAN};
  PhiloxStream random(1, 1);
  EXPECT_THROW(sample_token(logits, {}, random), UserError);
}

TEST(Utf8Joiner, PassesWholeCharactersOnly) {
  Utf8Joiner joiner;
  EXPECT_EQ(joiner.add("a\xc3"), "a");
  EXPECT_EQ(joiner.add("\xa9"
                       "b"),
            "\xc3\xa9"
            "b");
  EXPECT_EQ(joiner.add("\xf0\x9f"), "");
  EXPECT_EQ(joiner.add("\x98"), "");
  EXPECT_EQ(joiner.add("\x80"), "\xf0\x9f\x98\x80");
  EXPECT_EQ(joiner.add("\xff"), "\xef\xbf\xbd");
  EXPECT_EQ(joiner.add("\xe2\x82"), "");
  EXPECT_EQ(joiner.add("x"), "\xef\xbf\xbd\xef\xbf\xbdx");
  EXPECT_EQ(joiner.add("\xe2"), "");
  EXPECT_EQ(joiner.finish(), "\xef\xbf\xbd");
  EXPECT_EQ(joiner.finish(), "");
}
