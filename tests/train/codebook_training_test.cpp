// Training a codebook: the contract's acceptance values, the same bits by every path, and who gets a gradient.
#include <gtest/gtest.h>

#include <cmath>

#include "base/parallel.h"
#include "rlx/ops.h"
#include "rlx/session.h"
#include "rlx/train.h"
#include "rlx/transform.h"

using namespace rlx;

namespace {

constexpr std::int64_t kBatch = 8, kIn = 8, kOut = 6, kDim = 2, kEntries = 4;
constexpr int kSteps = 200;

template <class F>
Array filled(DType dtype, Extents shape, F&& value) {
  Array out(DType::F64, std::move(shape));
  for (std::int64_t i = 0; i < out.size(); ++i) out.values<double>()[std::size_t(i)] = value(i);
  return out.cast(dtype);
}

// The contract's problem: the codebook of a layer is found again from what the layer gives.
struct Problem {
  DType dtype;
  Array x = filled(dtype, {kBatch, kIn}, [](auto i) { return std::sin(0.17 * double(i)); });
  Array indices = filled(DType::U8, {kOut, kIn / kDim}, [](auto i) { return (3 * i + 1) % kEntries; });
  Array truth = filled(dtype, {kEntries, kDim}, [](auto i) { return 0.9 * std::cos(0.5 * double(i)); });
  Array zeros = Array(dtype, {kEntries, kDim});

  static Node layer(Node x, Node indices, Node codebook) {
    return synth_matmul(x, indices, codebook, {.entry_dim = kDim, .num_entries = kEntries});
  }
  // loss = Σ (y - target)².
  Graph loss() const {
    Graph g;
    Node difference =
        layer(g.input("x", x.type()), g.param("indices", indices.type()), g.param("codebook", truth.type())) -
        g.input("target", dtype, {kBatch, kOut});
    g.set_outputs({sum(difference * difference, {0, 1})});
    return g;
  }
  ArrayMap inputs(const Device& device) const {
    Graph g;
    g.set_outputs(
        {layer(g.input("x", x.type()), g.input("indices", indices.type()), g.input("codebook", truth.type()))});
    Array target = Session(device).compile(g).run({{"x", x}, {"indices", indices}, {"codebook", truth}})[0];
    return {{"x", x}, {"target", target}, {"d_output", Array::scalar(1, dtype)}};
  }
};

struct History {
  std::vector<double> losses;
  std::vector<Array> codebooks;
};

// What Muon makes of a codebook, in a graph of its own or in that of the step.
struct MuonStep {
  Nodes outputs;
  std::vector<Update> updates;
};
MuonStep muon_outputs(Node codebook, Node gradient, MuonScale scale, int first) {
  Graph g = codebook.graph();
  DType dtype = codebook.dtype();
  std::vector<StateNode> states;
  StepNodes step{g.constant(0.1, dtype), g.constant(0, dtype), g.constant(1, dtype)};
  Node next = muon_update({.scale = scale, .out_axis = 0}, codebook, gradient, step, states);
  return {{next, states[0].next}, {{codebook.name(), first}, {states[0].param.name(), first + 1}}};
}

// The update is part of the step's graph, and stays on the device.
History fused(const Problem& p, const Device& device, MuonScale scale) {
  Graph g = grad_with_loss(p.loss(), {"codebook"});
  auto [outputs, updates] = muon_outputs(g.find_leaf("codebook"), g.outputs()[1], scale, 1);
  g.set_outputs({g.outputs()[0], outputs[0], outputs[1]});
  auto compiled = Session(device).compile(g, {.name = "step", .updates = updates});
  compiled.set_param("indices", p.indices);
  for (auto& u : updates) compiled.set_param(u.param, p.zeros);
  ArrayMap inputs = p.inputs(device);
  History out;
  for (int i = 0; i < kSteps; ++i) {
    out.losses.push_back(compiled.run_read_outputs(inputs, {0})[0].at(0));
    out.codebooks.push_back(compiled.param("codebook"));
  }
  return out;
}

// All that a step needs lives on the device; only the loss comes back.
History resident(const Problem& p, const Device& device, MuonScale scale) {
  auto compiled = Session(device).compile(grad_with_loss(p.loss(), {"codebook"}), {.name = "resident"});
  compiled.set_param("indices", p.indices);
  compiled.bind_resident("codebook", p.zeros);
  for (auto& [name, value] : p.inputs(device)) compiled.bind_resident(name, value);
  History out;
  for (int i = 0; i < kSteps; ++i) {
    out.losses.push_back(compiled.run_read_outputs({}, {0})[0].at(0));
    compiled.optimizer_step_resident(Muon{.scale = scale, .out_axis = 0}, {{"codebook", 1}},
                                     {.step = i + 1, .learning_rate = 0.1, .weight_decay = 0});
    out.codebooks.push_back(compiled.read_resident("codebook"));
  }
  return out;
}

// The library's optimizer for arrays of the host.
History by_host_optimizer(const Problem& p, const Device& device, MuonScale scale) {
  auto compiled = Session(device).compile(grad_with_loss(p.loss(), {"codebook"}), {.name = "host"});
  compiled.set_param("indices", p.indices);
  HostOptimizer optimizer(Muon{.scale = scale, .out_axis = 0}, device);
  ArrayMap inputs = p.inputs(device), params{{"codebook", p.zeros.clone()}};
  History out;
  for (int i = 0; i < kSteps; ++i) {
    compiled.set_param("codebook", params.at("codebook"));
    auto result = compiled.run(inputs);
    optimizer.step(params, {{"codebook", result[1]}}, {.step = i + 1, .learning_rate = 0.1, .weight_decay = 0});
    out.losses.push_back(result[0].at(0));
    out.codebooks.push_back(params.at("codebook").clone());
  }
  return out;
}

// A graph of its own steps the codebook, and the host carries it and the gradient.
History by_host(const Problem& p, const Device& device, MuonScale scale) {
  auto gradients = Session(device).compile(grad_with_loss(p.loss(), {"codebook"}), {.name = "gradients"});
  Graph g;
  Node gradient = g.input("gradient", p.zeros.type());
  auto [outputs, updates] = muon_outputs(g.param("codebook", p.zeros.type()), gradient, scale, 0);
  g.set_outputs(outputs);
  auto optimizer = Session(device).compile(g, {.name = "muon", .updates = updates});
  gradients.set_param("indices", p.indices);
  gradients.set_param("codebook", p.zeros);
  for (auto& u : updates) optimizer.set_param(u.param, p.zeros);
  ArrayMap inputs = p.inputs(device);
  History out;
  for (int i = 0; i < kSteps; ++i) {
    auto result = gradients.run(inputs);
    optimizer.run({{"gradient", result[1]}});
    gradients.set_param("codebook", optimizer.param("codebook"));
    out.losses.push_back(result[0].at(0));
    out.codebooks.push_back(gradients.param("codebook"));
  }
  return out;
}

void expect_accepted(const History& h, double last) {
  EXPECT_NEAR(h.losses.front(), 62.2608, 1e-4);
  for (auto& loss : h.losses) EXPECT_TRUE(std::isfinite(loss));
  for (auto& c : h.codebooks)
    for (std::int64_t i = 0; i < c.size(); ++i) EXPECT_TRUE(std::isfinite(c.at(i)));
  EXPECT_LT(h.losses.back(), last);
}
void expect_equal(const History& a, const History& b) {
  EXPECT_EQ(a.losses, b.losses);
  for (std::size_t i = 0; i < a.codebooks.size(); ++i)
    EXPECT_TRUE(identical(a.codebooks[i], b.codebooks[i])) << "step " << i;
}

}  // namespace

TEST(CodebookTraining, AcceptanceOnEveryDevice) {
  Problem p{DType::F32};
  for (auto& device : devices()) {
    if (device.name == "null") continue;
    for (MuonScale scale : {MuonScale::Original, MuonScale::MatchRmsAdamw}) {
      SCOPED_TRACE(device.name);
      History host = by_host(p, device, scale);
      expect_accepted(host, 0.1 * 62.2608);
      expect_equal(fused(p, device, scale), host);
      expect_equal(resident(p, device, scale), host);
      expect_equal(by_host_optimizer(p, device, scale), host);
    }
  }
}

// In f64 rounding does not decide where the oscillation stands: an independent NumPy run ends at 0.4558, having been
// between 0.04 and 0.46, and at 4.24e-7.
TEST(CodebookTraining, InF64AsAnIndependentRun) {
  Problem p{DType::F64};
  for (auto& device : {Device::reference(), Device::cpu()}) {
    expect_accepted(fused(p, device, MuonScale::Original), 0.46);
    History match = fused(p, device, MuonScale::MatchRmsAdamw);
    expect_accepted(match, 1e-5);
    EXPECT_NEAR(match.losses.back(), 4.242e-7, 1e-8);
    const double start[] = {62.26083226865347, 58.70164156636842, 55.32121500095159, 52.116932043773474,
                            49.08334593108193};
    for (int i = 0; i < 5; ++i) EXPECT_NEAR(match.losses[std::size_t(i)], start[i], 1e-9);
  }
}

// A large codebook gradient goes through the chunked sum; its bits do not depend on the threads.
TEST(CodebookTraining, TheGradientIsTheSameForEveryNumberOfThreads) {
  constexpr std::int64_t n = 384, k = 512, batch = 16;
  for (std::int64_t d : {1, 2, 4, 8, 16}) {
    Graph g;
    Node x = g.input("x", DType::F32, {batch, k}), indices = g.param("indices", DType::U8, {n, k / d}),
         codebook = g.param("codebook", DType::F32, {256, d});
    Node y = synth_matmul(x, indices, codebook, {d, 256});
    g.set_outputs({sum(y * y, {0, 1})});
    Graph back = grad_with_loss(g, {"codebook"});
    ArrayMap inputs{{"x", filled(DType::F32, {batch, k}, [](auto i) { return std::sin(0.37 * double(i)); })},
                    {"d_output", Array::scalar(1, DType::F32)}};
    auto run = [&](const Device& device) {
      auto compiled = Session(device).compile(back);
      compiled.set_param("indices", filled(DType::U8, {n, k / d}, [](auto i) { return (i * 7919 + i / 13) % 256; }));
      compiled.set_param("codebook", filled(DType::F32, {256, d}, [](auto i) { return std::cos(0.7 * double(i)); }));
      Array out = compiled.run(inputs)[1];
      if (device.name == "cpu") {
        EXPECT_NE(compiled.report().find("(0 interpreted)"), std::string::npos) << compiled.report();
      }
      return out;
    };
    int threads = num_threads();
    set_num_threads(1);
    Array one = run(Device::cpu());
    for (int t : {2, 3, 7}) {
      set_num_threads(t);
      EXPECT_TRUE(identical(run(Device::cpu()), one)) << t << " threads, entries of " << d;
    }
    set_num_threads(threads);
    Array exact = run(Device::reference());
    double most = 0;
    for (std::int64_t i = 0; i < exact.size(); ++i) most = std::max(most, std::fabs(exact.at(i)));
    for (std::int64_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(one.at(i), exact.at(i), 1e-5 * most);
  }
}

TEST(CodebookTraining, ParamsThatStayAreDecodedOnce) {
  Graph g;
  g.set_outputs({synth_matmul(g.input("x", DType::F32, {3, 8}), g.param("indices", DType::U8, {6, 4}),
                              g.param("codebook", DType::F32, {4, 2}), {2, 4})});
  auto compiled = Session(Device::cpu()).compile(g);
  compiled.set_param("indices", Array(DType::U8, {6, 4}));
  compiled.set_param("codebook", Array(DType::F32, {4, 2}));
  compiled.run({{"x", Array(DType::F32, {3, 8})}});
  EXPECT_NE(compiled.report().find("kept gather"), std::string::npos) << compiled.report();
}

TEST(CodebookTraining, AnIndexOutOfRangeIsNamedOnEveryDevice) {
  Graph g;
  g.set_outputs({synth_matmul(g.input("x", DType::F32, {3, 8}), g.param("indices", DType::U8, {6, 4}),
                              g.param("codebook", DType::F32, {4, 2}), {2, 4})});
  for (auto& device : {Device::reference(), Device::cpu()}) {
    auto compiled = Session(device).compile(g);
    Array indices(DType::U8, {6, 4});
    indices.values<std::uint8_t>()[9] = 4;
    compiled.set_param("indices", indices);
    compiled.set_param("codebook", Array(DType::F32, {4, 2}));
    try {
      compiled.run({{"x", Array(DType::F32, {3, 8})}});
      ADD_FAILURE() << device.name << " took index 4 of 4 entries";
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find("index 4 "), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("synth_matmul"), std::string::npos) << e.what();
    }
  }
}

// A loss on the straight-through output z + stop_gradient(q - z) falls through z alone; the codebook needs a loss on q
// itself. Of that one, the chosen entries move towards their inputs and the others by exactly nothing.
TEST(CodebookTraining, OnlyTheLossOnTheEntriesMovesThem) {
  Array z(std::vector<float>{1, 2, 1.5f, 2.5f, -3, 0, -3, 1}, {4, 2}),
      chosen(std::vector<std::uint8_t>{0, 0, 2, 2}, {4, 1});
  Array start(std::vector<float>{0, 0, 9, 9, -1, -1, -7, 7}, {4, 2});
  for (auto& device : {Device::reference(), Device::cpu()})
    for (bool through : {false, true}) {
      Graph g;
      Node inputs = g.input("z", DType::F32, {4, 2}), codebook = g.param("codebook", DType::F32, {4, 2});
      Node q = reconstruct(g.input("indices", DType::U8, {4, 1}), codebook);
      Node difference = through ? inputs + stop_gradient(q - inputs) : stop_gradient(inputs) - q;
      Node loss = sum(difference * difference, {0, 1});
      g.set_outputs({codebook - 0.1 * grad(loss, {codebook})[0]});
      auto compiled = Session(device).compile(g);
      compiled.set_param("codebook", start);
      Array after = compiled.run({{"z", z}, {"indices", chosen}})[0];
      for (std::int64_t i = 0; i < 8; ++i)
        if (through || i / 2 == 1 || i / 2 == 3) {
          EXPECT_EQ(after.at(i), start.at(i)) << "entry " << i / 2;
        }
      if (through) continue;
      // c + 0.1 · 2 · Σ (z - c)
      const double expected[] = {0.5, 0.9, 9, 9, -1.8, -0.4, -7, 7};
      for (std::int64_t i = 0; i < 8; ++i) EXPECT_NEAR(after.at(i), expected[i], 1e-6);
    }
}
