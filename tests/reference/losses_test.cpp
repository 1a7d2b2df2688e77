// Training beside an independent PyTorch implementation of the model and its optimizers:
// tests/reference/bitnet_torch.py, whose numbers make_losses.py stored.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "reference/reference_case.h"
#include "rlx/transform.h"
#include "train/trainer.h"

using namespace rlx;

namespace {

const std::string kTests = RLX_TESTS_DIR;

nlohmann::json stored(const std::string& optimizer, const std::string& precision) {
  auto file = nlohmann::json::parse(read_file(kTests + "/reference/losses_" + optimizer + ".json", 1 << 24));
  return file.at(precision);
}

using Case = std::tuple<const char*, const char*>;
class Reference : public testing::TestWithParam<Case> {};

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
}

ArrayMap weights_of(const TrainConfig& c) {
  ArrayMap out;
  for (auto& [name, value] : init_params(c.model, c.seed)) out[name] = value;
  return out;
}

}  // namespace

TEST_P(Reference, FirstLossesAgreeWithPyTorch) {
  auto [optimizer, precision] = GetParam();
  TrainConfig config = reference::config_of(optimizer, precision);
  auto expected = stored(optimizer, precision).at("losses").get<std::vector<double>>();
  ASSERT_EQ(expected.size(), std::size_t(reference::kSteps));
  Trainer trainer(config, Device::cpu());
  trainer.set_weights(init_params(config.model, config.seed));
  trainer.set_optimizer({}, "");
  auto batches = reference::batches(kTests + "/..");
  double bound = config.model.precision == "f32" ? 1e-5 : 1e-3;
  for (std::size_t step = 0; step < expected.size(); ++step) {
    double loss = trainer.run_step(batches[step], std::int64_t(step), config.steps).loss;
    ASSERT_NEAR(loss, expected[step], bound * expected[step]) << "step " << step;
  }
}
INSTANTIATE_TEST_SUITE_P(All, Reference,
                         testing::Combine(testing::ValuesIn(reference::kOptimizers),
                                          testing::ValuesIn(reference::kPrecisions)),
                         case_name);

class ReferenceBatch : public testing::TestWithParam<const char*> {};

TEST_P(ReferenceBatch, LogitsAgreeWithPyTorch) {
  TrainConfig config = reference::config_of("adamw", GetParam());
  auto expected = stored("adamw", GetParam()).at("logits").get<std::vector<std::vector<double>>>();
  Graph graph = training_graph(config.model, reference::kBatch, reference::kLength);
  graph.set_outputs({graph.find("logits")});
  auto compiled = Session(Device::cpu()).compile(graph);
  for (auto& [name, value] : weights_of(config)) compiled.set_param(name, value);
  Array logits = compiled.run({{"tokens", reference::batches(kTests + "/..")[0]}})[0];
  std::int64_t vocab = config.model.vocab_size;
  for (std::size_t t = 0; t < expected.size(); ++t)
    for (std::size_t k = 0; k < expected[t].size(); ++k)
      ASSERT_NEAR(logits.at(std::int64_t(t) * vocab + std::int64_t(k) * 20), expected[t][k], 2e-5)
          << "position " << t << " token " << 20 * k;
}

TEST_P(ReferenceBatch, GradientsAgreeWithPyTorch) {
  TrainConfig config = reference::config_of("adamw", GetParam());
  auto expected = stored("adamw", GetParam()).at("gradients");
  Graph graph = training_graph(config.model, reference::kBatch, reference::kLength);
  std::vector<std::string> names;
  for (auto& p : model_params(config.model)) names.push_back(p.name);
  ASSERT_EQ(names.size(), expected.size());
  auto compiled = Session(Device::cpu()).compile(grad_with_loss(graph, names));
  for (auto& [name, value] : weights_of(config)) compiled.set_param(name, value);
  auto out =
      compiled.run({{"tokens", reference::batches(kTests + "/..")[0]}, {"d_output", Array::scalar(1, DType::F32)}});
  for (std::size_t i = 0; i < names.size(); ++i) {
    double norm = 0, products[3] = {};
    for (std::int64_t k = 0; k < out[i + 1].size(); ++k) {
      double g = out[i + 1].at(k), at = double(k);
      norm += g * g;
      products[0] += g * std::cos(0.1 * at), products[1] += g * std::cos(0.37 * at),
          products[2] += g * std::sin(1.3 * at);
    }
    auto wanted = expected.at(names[i]).get<std::vector<double>>();
    double bound = 1e-4 * wanted[0];
    EXPECT_NEAR(std::sqrt(norm), wanted[0], bound) << names[i];
    for (int k = 0; k < 3; ++k) EXPECT_NEAR(products[k], wanted[std::size_t(k) + 1], bound) << names[i];
  }
}
INSTANTIATE_TEST_SUITE_P(All, ReferenceBatch, testing::ValuesIn(reference::kPrecisions));
