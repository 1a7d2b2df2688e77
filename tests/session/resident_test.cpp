// Tensors that live on the device between runs, and optimizers that step them there.
#include <gtest/gtest.h>

#include <cmath>

#include "message_of.h"
#include "rlx/ops.h"
#include "rlx/session.h"
#include "rlx/transform.h"

using namespace rlx;
namespace {

Array wave(Extents shape, double rate, double size = 1) {
  Array out(DType::F32, std::move(shape));
  for (std::int64_t i = 0; i < out.size(); ++i)
    out.values<float>()[std::size_t(i)] = float(size * std::sin(rate * double(i) + 0.3));
  return out;
}

std::vector<Device> devices_that_run() { return {Device::cpu(), Device::reference()}; }

const std::vector<Optimizer> kOptimizers{Sgd{.momentum = 0.9, .nesterov = true},
                                         AdamW{},
                                         Muon{},
                                         Lion{},
                                         Adafactor{},
                                         Lamb{},
                                         Sgd{},
                                         Muon{.scale = MuonScale::MatchRmsAdamw, .bf16 = true}};

// A network of two layers with a bias, and the gradients of its squared error: outputs loss, d w1, d b, d w2. w1 is an
// input, the others are params.
struct Net {
  Graph graph;
  std::vector<std::string> names{"w1", "b", "w2"};
  GradientOutputs gradients{{"w1", 1}, {"b", 2}, {"w2", 3}};
  std::map<std::string, Array, std::less<>> start{
      {"w1", wave({7, 12}, 0.37, 0.5)}, {"b", wave({12}, 0.7, 0.1)}, {"w2", wave({12, 3}, 0.23, 0.5)}};
  Array x = wave({5, 7}, 0.91), y = wave({5, 3}, 0.53);

  Net() {
    Graph g;
    Node in = g.input("x", DType::F32, {5, 7}), target = g.input("y", DType::F32, {5, 3});
    Node w1 = g.input("w1", DType::F32, {7, 12}), b = g.param("b", DType::F32, {12}),
         w2 = g.param("w2", DType::F32, {12, 3});
    Node error = matmul(tanh(matmul(in, w1) + b), w2) - target;
    g.set_outputs({sum(error * error, {0, 1})});
    graph = grad_with_loss(g, names);
  }
  ArrayMap fed() const { return {{"x", x}, {"y", y}, {"d_output", Array::scalar(1, DType::F32)}}; }
  CompiledGraph resident(Device device) const {
    CompiledGraph out = Session(std::move(device)).compile(graph, {.name = "net"});
    for (auto& [name, value] : start) out.bind_resident(name, value);
    return out;
  }
};

ParamGroups groups_for(const Optimizer& optimizer) {
  if (auto* muon = std::get_if<Muon>(&optimizer)) return muon_groups(*muon, AdamW{}, 0.5);
  return {{.optimizer = optimizer}};
}
OptimizerStep step_of(std::int64_t step) {
  return {.step = step, .learning_rate = 0.02 / double(step), .weight_decay = 0.1};
}

TEST(Resident, EqualsTheHostFormBitForBitAtEveryStep) {
  Net net;
  for (auto& optimizer : kOptimizers) {
    auto on_device = net.resident(Device::cpu());
    auto fed = Session(Device::cpu()).compile(net.graph, {.name = "host"});
    HostOptimizer host(groups_for(optimizer));
    ArrayMap params;
    for (auto& [name, value] : net.start) params.emplace(name, value.clone());
    for (int step = 1; step <= 10; ++step) {
      float loss = on_device.run_read_outputs(net.fed(), {0})[0].values<float>()[0];
      on_device.optimizer_step_resident(groups_for(optimizer), net.gradients, step_of(step));

      ArrayMap inputs = net.fed();
      inputs.emplace("w1", params.at("w1"));
      fed.set_param("b", params.at("b")), fed.set_param("w2", params.at("w2"));
      auto out = fed.run(inputs);
      ASSERT_EQ(out[0].values<float>()[0], loss) << optimizer_name(optimizer) << " step " << step;
      host.step(params, {{"w1", out[1]}, {"b", out[2]}, {"w2", out[3]}}, step_of(step));
      for (auto& [name, value] : params)
        ASSERT_TRUE(identical(value, on_device.read_resident(name)))
            << optimizer_name(optimizer) << " " << name << " step " << step;
    }
    Tensors state = host.state(), resident = on_device.resident_state();
    ASSERT_EQ(state.size(), resident.size());
    for (auto& [name, value] : state) EXPECT_TRUE(identical(value, resident.at(name))) << name;
  }
}

TEST(Resident, AllDevicesAgreeToRounding) {
  Net net;
  for (auto& optimizer : kOptimizers) {
    if (auto* muon = std::get_if<Muon>(&optimizer); muon && muon->bf16) continue;
    auto a = net.resident(Device::cpu()), b = net.resident(Device::reference());
    for (int step = 1; step <= 6; ++step)
      for (auto* each : {&a, &b}) {
        each->run_read_outputs(net.fed(), {});
        each->optimizer_step_resident(groups_for(optimizer), net.gradients, step_of(step));
      }
    for (auto& name : net.names) {
      Array x = a.read_resident(name), y = b.read_resident(name);
      for (std::int64_t i = 0; i < x.size(); ++i)
        EXPECT_NEAR(x.at(i), y.at(i), 2e-5) << optimizer_name(optimizer) << " " << name;
    }
  }
}

// The update compiled into the step gives the same bits as the one beside it.
TEST(Resident, EqualsAnUpdateInTheStepBitForBit) {
  Net net;
  for (auto& optimizer : kOptimizers) {
    Graph source;
    {
      Node x = source.input("x", DType::F32, {5, 7}), y = source.input("y", DType::F32, {5, 3});
      Node w1 = source.param("w1", DType::F32, {7, 12}), b = source.param("b", DType::F32, {12}),
           w2 = source.param("w2", DType::F32, {12, 3});
      Node error = matmul(tanh(matmul(x, w1) + b), w2) - y;
      source.set_outputs({sum(error * error, {0, 1})});
    }
    Graph graph = grad_with_loss(source, net.names);
    StepNodes nodes{graph.input("lr", DType::F32, {}), graph.input("decay", DType::F32, {}),
                    graph.input("step", DType::F32, {})};
    Nodes outputs = graph.outputs();
    std::vector<Update> updates;
    std::vector<StateNode> states;
    ParamGroups groups = groups_for(optimizer);
    auto carry = [&](Node param, Node next) {
      updates.push_back({param.name(), int(outputs.size())}), outputs.push_back(next);
    };
    for (auto& [name, output] : net.gradients) {
      const ParamGroup& group = group_of(groups, name, net.start.at(name).shape());
      StepNodes own = nodes;
      if (group.learning_rate_factor != 1) own.learning_rate = nodes.learning_rate * group.learning_rate_factor;
      if (!group.weight_decay) own.weight_decay = graph.constant(0, DType::F32);
      Node param = graph.find_leaf(name);
      carry(param, optimizer_update(group.optimizer, param, outputs[std::size_t(output)], own, states));
    }
    for (auto& s : states) carry(s.param, s.next);
    graph.set_outputs(outputs);
    auto inside = Session(Device::cpu()).compile(graph, {.name = "inside", .updates = updates});
    for (auto& [name, value] : net.start) inside.set_param(name, value);
    for (auto& s : states) inside.set_param(s.param.name(), Array(DType::F32, to_extents(s.param.shape())));

    auto beside = net.resident(Device::cpu());
    for (int step = 1; step <= 10; ++step) {
      auto scalar = [](double v) { return Array::scalar(v, DType::F32); };
      ArrayMap inputs = net.fed();
      inputs.emplace("lr", scalar(*step_of(step).learning_rate)), inputs.emplace("decay", scalar(0.1)),
          inputs.emplace("step", scalar(step));
      float loss = inside.run_read_outputs(inputs, {0})[0].values<float>()[0];
      ASSERT_EQ(beside.run_read_outputs(net.fed(), {0})[0].values<float>()[0], loss)
          << optimizer_name(optimizer) << " step " << step;
      beside.optimizer_step_resident(groups, net.gradients, step_of(step));
      for (auto& name : net.names)
        ASSERT_TRUE(identical(inside.param(name), beside.read_resident(name)))
            << optimizer_name(optimizer) << " " << name << " step " << step;
    }
  }
}

// Saved after three steps and taken up by another graph, it goes on to the same bits.
TEST(Resident, StateIsSavedAndLoadedByName) {
  Net net;
  for (auto& device : devices_that_run())
    for (auto& optimizer : kOptimizers) {
      auto through = net.resident(device), first = net.resident(device);
      auto take = [&](CompiledGraph& graph, int from, int to) {
        for (int step = from; step <= to; ++step) {
          graph.run_read_outputs(net.fed(), {});
          graph.optimizer_step_resident(groups_for(optimizer), net.gradients, step_of(step));
        }
      };
      take(through, 1, 6);
      take(first, 1, 3);
      auto second = Session(device).compile(net.graph, {.name = "second"});
      for (auto& name : net.names) second.bind_resident(name, first.read_resident(name));
      if (first.resident_state().empty()) {
        take(second, 4, 6);
      } else {
        second.run_read_outputs(net.fed(), {});
        EXPECT_NE(message_of([&] {
                    second.optimizer_step_resident(groups_for(optimizer), net.gradients, step_of(4));
                  }).find("has no state"),
                  std::string::npos);
        second.set_resident_state(first.resident_state());
        take(second, 4, 6);
      }
      for (auto& name : net.names)
        EXPECT_TRUE(identical(through.read_resident(name), second.read_resident(name)))
            << device.name << " " << optimizer_name(optimizer) << " " << name;
    }
}

TEST(Resident, UnlistedOutputsStayOnTheDevice) {
  Net net;
  for (auto& device : devices_that_run()) {
    auto graph = net.resident(device);
    auto all = graph.run(net.fed());
    EXPECT_TRUE(graph.run_read_outputs(net.fed(), {}).empty());
    for (int i = 0; i < 4; ++i)
      EXPECT_TRUE(identical(graph.read_output(i), all[std::size_t(i)])) << device.name << " " << i;
  }
}

// Outputs that are an input that was fed, a param, a view of it, and its next value.
TEST(Resident, OutputsThatAreLeavesAreWhatTheyWereInTheRun) {
  for (auto& device : devices_that_run()) {
    Graph g;
    Node x = g.input("x", DType::F32, {2, 3}), p = g.param("p", DType::F32, {2, 3}),
         q = g.param("q", DType::F32, {2, 3});
    g.set_outputs({x, p, transpose(q, {1, 0}), p + x});
    auto graph = Session(device).compile(g, {.name = "leaves", .updates = {{"p", 3}}});
    Array fed = wave({2, 3}, 1), was_p = wave({2, 3}, 2), was_q = wave({2, 3}, 3), copy = fed.clone();
    graph.set_param("p", was_p), graph.bind_resident("q", was_q);
    graph.run_read_outputs({{"x", fed}}, {});
    fed.values<float>()[0] = 99;
    EXPECT_TRUE(identical(graph.read_output(0), copy)) << device.name;
    EXPECT_TRUE(identical(graph.read_output(1), was_p)) << device.name;
    EXPECT_EQ(graph.read_output(2).at(1), was_q.at(3)) << device.name;
    EXPECT_TRUE(identical(graph.read_output(3), graph.param("p"))) << device.name;
  }
}

// Each is the other's gradient: neither step may see what the other has written.
TEST(Resident, AGradientMayBeAnotherTensorItself) {
  for (auto& device : devices_that_run()) {
    Graph g;
    Node a = g.input("a", DType::F32, {3, 3}), b = g.input("b", DType::F32, {3, 3});
    g.set_outputs({sum(a * b, {0, 1}), b, a});
    auto graph = Session(device).compile(g, {.name = "pair"});
    Array start_a = wave({3, 3}, 1), start_b = wave({3, 3}, 2);
    graph.bind_resident("a", start_a), graph.bind_resident("b", start_b);
    graph.run_read_outputs({}, {});
    graph.optimizer_step_resident(Sgd{}, {{"a", 1}, {"b", 2}}, {.learning_rate = 0.5});
    for (int i = 0; i < 9; ++i) {
      EXPECT_FLOAT_EQ(float(graph.read_resident("a").at(i)), float(start_a.at(i) - 0.5 * start_b.at(i))) << device.name;
      EXPECT_FLOAT_EQ(float(graph.read_resident("b").at(i)), float(start_b.at(i) - 0.5 * start_a.at(i))) << device.name;
    }
  }
}

TEST(Resident, SixteenBitTensorsHaveStateInF32) {
  for (auto& device : devices_that_run())
    for (DType dtype : {DType::BF16, DType::F16, DType::F64}) {
      Graph g;
      Node w = g.param("w", dtype, {4, 6});
      g.set_outputs({sum(w * w, {0, 1}), w * 2});
      auto graph = Session(device).compile(g, {.name = "half"});
      graph.bind_resident("w", wave({4, 6}, 1).cast(dtype));
      for (int step = 1; step <= 3; ++step) {
        graph.run_read_outputs({}, {});
        graph.optimizer_step_resident(AdamW{}, {{"w", 1}}, {.step = step, .learning_rate = 0.1});
      }
      EXPECT_EQ(graph.read_resident("w").dtype(), dtype);
      EXPECT_EQ(graph.resident_state().at("adamw.m.w").dtype(), dtype == DType::F64 ? DType::F64 : DType::F32);
      EXPECT_TRUE(std::isfinite(graph.read_resident("w").at(0)));
    }
}

TEST(Resident, SymbolicSizesAreThoseOfTheTensor) {
  for (auto& device : devices_that_run()) {
    Graph g;
    Dim n = Dim::symbol("n");
    Node w = g.input("w", DType::F32, {n, 2}), x = g.input("x", DType::F32, {n, 2});
    g.set_outputs({sum(w * x, {0, 1}), x});
    auto graph = Session(device).compile(g, {.name = "sized"});
    graph.bind_resident("w", wave({4, 2}, 1));
    EXPECT_EQ(message_of([&] {
                graph.run({{"x", wave({3, 2}, 1)}});
              }),
              "sized: input \"x\": got f32[3,2], expected f32[n,2]; axis 0 is n = 4");
    graph.run_read_outputs({{"x", wave({4, 2}, 1)}}, {});
    graph.optimizer_step_resident(Sgd{}, {{"w", 1}}, {.learning_rate = 1});
    EXPECT_EQ(graph.read_resident("w").at(3), 0);
    graph.bind_resident("w", wave({3, 2}, 1));
    EXPECT_EQ(graph.run({{"x", wave({3, 2}, 1)}}).size(), 2u);
  }
}

// A codebook layer whose codebook is found again from what the layer gives.
struct CodebookTask {
  Graph graph;
  Array x = Array(DType::F64, {8, 8}), target = Array(DType::F64, {8, 6}), indices = Array(DType::U8, {6, 4});
  explicit CodebookTask(DType dtype) {
    Array codebook(DType::F64, {4, 2});
    for (int i = 0; i < 64; ++i) x.values<double>()[std::size_t(i)] = std::sin(0.17 * i);
    for (int i = 0; i < 24; ++i) indices.values<std::uint8_t>()[std::size_t(i)] = std::uint8_t((3 * i + 1) % 4);
    for (int i = 0; i < 8; ++i) codebook.values<double>()[std::size_t(i)] = 0.9 * std::cos(0.5 * i);
    for (int b = 0; b < 8; ++b)
      for (int j = 0; j < 6; ++j)
        for (int k = 0; k < 8; ++k)
          target.values<double>()[std::size_t(b * 6 + j)] +=
              x.at(b * 8 + k) * codebook.at(std::int64_t(indices.at(j * 4 + k / 2)) * 2 + k % 2);
    x = x.cast(dtype), target = target.cast(dtype);
    Graph g;
    Node in = g.input("x", dtype, {8, 8}), y = g.input("target", dtype, {8, 6}),
         codes = g.input("indices", DType::U8, {6, 4});
    Node error = synth_matmul(in, codes, g.input("codebook", dtype, {4, 2}), {.entry_dim = 2, .num_entries = 4}) - y;
    g.set_outputs({sum(error * error, {0, 1})});
    graph = grad_with_loss(g, std::vector<std::string>{"codebook"});
  }
  ArrayMap fed() const { return {{"x", x}, {"target", target}, {"d_output", Array::scalar(1, x.dtype())}}; }
  std::vector<double> losses(const Device& device, const Muon& muon, int steps) const {
    auto compiled = Session(device).compile(graph, {.name = "codebook"});
    compiled.bind_resident("codebook", Array(x.dtype(), {4, 2}));
    compiled.bind_resident("indices", indices);
    std::vector<double> out;
    for (int step = 1; step <= steps; ++step) {
      out.push_back(compiled.run_read_outputs(fed(), {0})[0].at(0));
      compiled.optimizer_step_resident(muon, {{"codebook", 1}},
                                       {.step = step, .learning_rate = 0.1, .weight_decay = 0});
    }
    return out;
  }
};

// The losses of the same in NumPy's f64. After 100 steps they depend on the last bits: it turns about the minimum at a
// fixed learning rate.
TEST(Resident, ACodebookLearnsByMuonAsInNumPy) {
  const std::vector<std::size_t> steps{0, 1, 5, 10, 20, 30, 50, 100};
  const std::map<MuonScale, std::vector<double>> expected{
      {MuonScale::Original,
       {62.2608323, 50.4664903, 19.9621452, 4.1976645, 23.3082324, 2.1459599, 0.5001464, 0.1841082}},
      {MuonScale::MatchRmsAdamw,
       {62.2608323, 58.7016416, 46.2111327, 33.7557311, 16.437491, 6.3198158, 2.1327225, 0.0470351}}};
  CodebookTask task(DType::F64);
  for (auto& device : devices_that_run())
    for (auto& [scale, values] : expected) {
      auto losses = task.losses(device, Muon{.scale = scale}, 200);
      for (std::size_t i = 0; i < steps.size(); ++i)
        EXPECT_NEAR(losses[steps[i]], values[i], 1e-6) << device.name << " step " << steps[i];
      EXPECT_LT(losses.back(), 1);
    }
}

TEST(Resident, ACodebookLearnsByMuonInF32) {
  CodebookTask task(DType::F32);
  auto cpu = task.losses(Device::cpu(), Muon{}, 200), reference = task.losses(Device::reference(), Muon{}, 200);
  EXPECT_NEAR(cpu[0], 62.2608, 1e-4);
  for (std::size_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(std::isfinite(cpu[i]) && std::isfinite(reference[i]));
    // Later, rounding says where in its cycle it is.
    if (i < 20) {
      EXPECT_NEAR(cpu[i], reference[i], 1e-4 * cpu[0]) << i;
    }
  }
  EXPECT_LT(cpu.back(), 0.1 * cpu[0]);
  EXPECT_LT(reference.back(), 0.1 * cpu[0]);

  auto host = Session(Device::cpu()).compile(task.graph, {.name = "host"});
  HostOptimizer muon(Muon{});
  Array book(DType::F32, {4, 2});
  for (int step = 1; step <= 200; ++step) {
    ArrayMap inputs = task.fed();
    inputs.emplace("codebook", book), inputs.emplace("indices", task.indices);
    auto out = host.run(inputs);
    ASSERT_EQ(out[0].at(0), cpu[std::size_t(step - 1)]) << step;
    muon.step({{"codebook", book}}, {{"codebook", out[1]}}, {.step = step, .learning_rate = 0.1, .weight_decay = 0});
  }
}

TEST(Resident, TheNullDeviceBindsAndRunsNothing) {
  Net net;
  auto graph = net.resident(Device::null());
  EXPECT_TRUE(identical(graph.read_resident("w1"), net.start.at("w1")));
  EXPECT_THROW(graph.run_read_outputs(net.fed(), {0}), Unsupported);
  EXPECT_THROW(graph.optimizer_step_resident(AdamW{}, net.gradients, {}), Unsupported);
  EXPECT_NE(message_of([&] { graph.optimizer_step_resident(Muon{}, net.gradients, {}); }).find("expected a 2-D param"),
            std::string::npos);
}

TEST(Resident, ErrorsSayWhatWasGivenAndExpected) {
  Net net;
  for (auto& device : devices_that_run()) {
    auto g = Session(device).compile(net.graph, {.name = "net"});
    auto fails = [&](const std::string& expected, const std::function<void()>& f) {
      EXPECT_EQ(message_of(f), expected) << device.name;
    };
    fails(
        "net: there is no input or param \"w\"; it has inputs \"x\", \"y\", \"w1\", \"d_output\" and params \"b\", "
        "\"w2\"",
        [&] { g.bind_resident("w", net.x); });
    fails("net: input \"w1\": got f32[5,7], expected f32[7,12]; axis 0 is 7 = 7",
          [&] { g.bind_resident("w1", net.x); });
    fails("net: input \"w1\": got 12 bytes (3 elements), expected 336 (f32[7,12])", [&] {
      g.bind_resident("w1", std::vector<float>{1, 2, 3});
    });
    fails("net: param \"b\": got f64[12], expected f32[12]",
          [&] { g.bind_resident("b", net.start.at("b").cast(DType::F64)); });
    fails("net: param \"b\" f32[12] is not resident: bind_resident puts it on the device",
          [&] { g.read_resident("b"); });
    fails(
        "net: there is no input or param \"c\"; it has inputs \"x\", \"y\", \"w1\", \"d_output\" and params \"b\", "
        "\"w2\"",
        [&] { g.read_resident("c"); });
    g.set_param("b", net.start.at("b"));
    fails("net: param \"b\" f32[12] is not resident: bind_resident puts it on the device", [&] {
      g.optimizer_step_resident(AdamW{}, {{"b", 2}}, {});
    });
    for (auto& [name, value] : net.start) g.bind_resident(name, value);
    fails("net: output 2 is not there: there was no run, or it is a param's own value and that has changed since",
          [&] { g.optimizer_step_resident(AdamW{}, net.gradients, {}); });
    fails("net: output 0 is not there: there was no run, or it is a param's own value and that has changed since",
          [&] { g.read_output(0); });
    ArrayMap inputs = net.fed();
    inputs.emplace("w1", net.start.at("w1"));
    fails("net: \"w1\" is resident and cannot be fed: bind_resident gives it another value", [&] { g.run(inputs); });
    g.run_read_outputs(net.fed(), {});
    fails("net: there is no output 4, the graph has 4", [&] { g.read_output(4); });
    fails("net: the gradient of \"w1\" is output 9, the graph has 4", [&] {
      g.optimizer_step_resident(AdamW{}, {{"w1", 9}}, {});
    });
    fails("net: the gradient of \"w1\" is output 2, f32[12], the input is f32[7,12]", [&] {
      g.optimizer_step_resident(AdamW{}, {{"w1", 2}}, {});
    });
    fails(
        "net: \"b\" f32[12]: [muon] got %0 \"param\" f32[12], expected a 2-D param; muon_groups gives the others to "
        "another optimizer",
        [&] { g.optimizer_step_resident(Muon{}, net.gradients, {}); });
    fails("net: \"b\" f32[12]: [adamw] got beta1 2, expected 0 or more and less than 1", [&] {
      g.optimizer_step_resident(AdamW{.beta1 = 2}, {{"b", 2}}, {});
    });
    fails("net: got step 0, expected one from 1",
          [&] { g.optimizer_step_resident(AdamW{}, net.gradients, {.step = 0}); });
    fails("net: got nan as learning rate or weight decay, expected a finite number",
          [&] { g.optimizer_step_resident(AdamW{}, net.gradients, {.learning_rate = std::nan("")}); });
    fails(
        "net: step 2 of \"b\" by adamw has no state \"adamw.m.b\": it begins with step 1, or with the state of the "
        "step before",
        [&] { g.optimizer_step_resident(AdamW{}, net.gradients, {.step = 2}); });
    fails("[optimizer] \"b\" [12] is of none of the 1 groups",
          [&] { g.optimizer_step_resident(ParamGroups{{.pattern = "w?"}}, net.gradients, {}); });
    fails("net: there are no gradients to step by", [&] { g.optimizer_step_resident(AdamW{}, {}, {}); });
    fails("net: \"muon\" is no name of optimizer state, expected <optimizer>.<part>.<tensor>", [&] {
      g.set_resident_state({{"muon", net.x}});
    });
    fails(
        "net: there is no input or param \"c\"; it has inputs \"x\", \"y\", \"w1\", \"d_output\" and params \"b\", "
        "\"w2\"",
        [&] {
          g.set_resident_state({{"muon.m.c", net.x}});
        });
    EXPECT_TRUE(g.resident_state().empty());
    for (auto& [name, value] : net.start) EXPECT_TRUE(identical(g.read_resident(name), value));  // nothing was changed
    g.set_resident_state({{"adamw.m.b", net.x}});
    fails("net: state \"adamw.m.b\" is f32[5,7], expected f32[12]",
          [&] { g.optimizer_step_resident(AdamW{}, net.gradients, {}); });
    fails("net: state \"adamw.m.b\" was set, lion has \"lion.m.b\"",
          [&] { g.optimizer_step_resident(Lion{}, net.gradients, {}); });
  }
}

}  // namespace
