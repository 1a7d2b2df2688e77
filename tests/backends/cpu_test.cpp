// The cpu device against the interpreter: every kind of step, alone and fused, and the same bits for any thread count.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/parallel.h"
#include "rlx/ops.h"
#include "rlx/session.h"
#include "rlx/transform.h"

using namespace rlx;
namespace {

Array random_array(DType dtype, const Extents& shape, unsigned seed) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<float> u(-2, 2);
  Array f(DType::F32, shape);
  for (auto& v : f.values<float>()) v = u(rng);
  if (dtype == DType::Bool)
    for (auto& v : f.values<float>()) v = v > 0;
  return f.cast(dtype);
}

ArrayMap random_inputs(const Graph& graph, const Bindings& symbols = {}) {
  ArrayMap out;
  unsigned seed = 1;
  for (auto& leaf : graph.inputs()) out[leaf.name()] = random_array(leaf.dtype(), evaluate(leaf.shape(), symbols), seed++);
  return out;
}

// Runs on both devices and compares every output; gives back the report of the cpu.
std::string expect_same(const Graph& graph, const ArrayMap& inputs, double tolerance = 1e-5) {
  auto reference = Session(Device::reference()).compile(graph);
  auto cpu = Session(Device::cpu()).compile(graph);
  unsigned seed = 100;
  for (auto& p : graph.params()) {
    Array value = random_array(p.dtype(), to_extents(p.shape()), seed++);
    reference.set_param(p.name(), value);
    cpu.set_param(p.name(), value);
  }
  auto want = reference.run(inputs);
  for (int round = 0; round < 2; ++round) {
    auto got = cpu.run(inputs);
    for (std::size_t o = 0; o < want.size(); ++o) {
      EXPECT_EQ(got[o].type(), want[o].type());
      for (std::int64_t i = 0; i < want[o].size(); ++i) {
        double w = want[o].at(i), g = got[o].at(i);
        if (std::isnan(w) && std::isnan(g)) continue;
        if (w == g) continue;
        EXPECT_LE(std::abs(w - g), tolerance * (1 + std::abs(w))) << "output " << o << " element " << i << "\n" << graph.text();
        if (std::abs(w - g) > tolerance * (1 + std::abs(w))) return cpu.report();
      }
    }
  }
  return cpu.report();
}

Axes axes_up_to(int rank) {
  Axes out;
  for (int d = 0; d < rank; ++d) out.push_back(d);
  return out;
}

int steps_in(const std::string& report) {
  int steps = 0;
  for (char c : report) steps += c == '\n';
  return steps - 1;
}

TEST(Cpu, AChainIsOneStep) {
  Graph g;
  Node x = g.input("x", DType::F32, {5, 300}), y = g.input("y", DType::F32, {300});
  g.set_outputs({silu(x * 2 + y) / (1 + exp(-x)), maximum(x, y) > 0});
  EXPECT_EQ(steps_in(expect_same(g, random_inputs(g))), 1);
}

TEST(Cpu, SoftmaxIsOneStep) {
  for (Extents shape : {Extents{7, 33}, {2, 3, 64}, {1, 5000}, {300, 1}}) {
    Graph g;
    Node x = g.input("x", DType::F32, to_shape(shape));
    Node e = exp(x - max(x, {-1}, true));
    g.set_outputs({e / sum(e, {-1}, true)});
    EXPECT_EQ(steps_in(expect_same(g, random_inputs(g))), 1) << to_string(shape);
  }
}

TEST(Cpu, ReductionsOverAnyAxes) {
  for (Axes axes : std::vector<Axes>{{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}})
    for (bool keepdims : {false, true}) {
      Graph g;
      Node x = g.input("x", DType::F32, {6, 5, 70});
      Node y = exp(x * 0.5);
      g.set_outputs({sum(y, axes, keepdims), mean(x, axes, keepdims), max(y, axes, keepdims) * 2});
      expect_same(g, random_inputs(g));
    }
}

TEST(Cpu, ReducedValuesFlowOn) {
  Graph g;
  Node x = g.input("x", DType::F32, {4, 9, 40}), w = g.input("w", DType::F32, {40});
  Node norm = x * rsqrt(mean(x * x, {-1}, true) + 1e-5) * w;
  Node rows = sum(norm, {-1}, false);
  Node loss = mean(rows * rows, {0, 1}, false);
  g.set_outputs({loss});
  g.set_outputs({loss, grad(loss, {x})[0], grad(loss, {w})[0], norm - expand(reshape(rows, {4, 9, 1}), {4, 9, 40})});
  expect_same(g, random_inputs(g));
}

TEST(Cpu, MovementIsViews) {
  Graph g;
  Node x = g.input("x", DType::F32, {4, 6, 10});
  Node t = transpose(x, {2, 0, 1});
  Node s = slice(t, {1, 0, 5}, {4, 2, 3}, {2, 2, -2});
  g.set_outputs({t + 1, s, reshape(transpose(x * 2, {1, 0, 2}), {6, 40}) + 1, concat({s * 2, s + 1, s}, 1), pad(s, {1, 0, 2}, {0, 1, 0}, 3), flip(x, {0, 2}) * x, concat({t, t}, 0)});
  expect_same(g, random_inputs(g));
}

TEST(Cpu, MatrixProductsOfAnyForm) {
  struct Case {
    Shape a, b;
  };
  for (auto& c : std::vector<Case>{{{3, 4}, {4, 5}}, {{1, 7}, {7, 1}}, {{2, 3, 4}, {4, 5}}, {{2, 3, 4}, {2, 4, 5}}, {{2, 1, 3, 4}, {5, 4, 6}}, {{4}, {4, 3}}, {{3, 4}, {4}},
                                   {{4}, {4}}, {{70, 130}, {130, 33}}, {{0, 3}, {3, 2}}, {{3, 0}, {0, 2}}}) {
    Graph g;
    Node a = g.input("a", DType::F32, c.a), b = g.input("b", DType::F32, c.b);
    g.set_outputs({matmul(a, b), matmul(a * 2, b) + 1});
    expect_same(g, random_inputs(g));
  }
}

TEST(Cpu, GeneralAndSixteenBitProducts) {
  Graph g;
  Node a = g.input("a", DType::F32, {3, 2, 5, 4}), b = g.input("b", DType::F32, {4, 2, 6, 3});
  Node h = g.input("h", DType::BF16, {9, 20}), k = g.input("k", DType::F16, {20, 7}), w = g.input("w", DType::BF16, {20, 7});
  g.set_outputs({dot_general(a, b, {1}, {1}, {0, 3}, {3, 0}), dot_general(a, b, {}, {}, {1}, {1}), matmul(h, w), matmul(h, w, DType::F32), matmul(cast(h, DType::F16), k) * 2,
                 matmul(h, cast(k, DType::F32))});
  auto report = expect_same(g, random_inputs(g), 1e-2);
  EXPECT_EQ(report.find("(interpreted)\n"), std::string::npos) << report;
}

TEST(Cpu, Convolutions) {
  struct Case {
    Shape x, w;
    ConvAttrs attrs;
  };
  for (auto& c : std::vector<Case>{{{2, 3, 9}, {4, 3, 3}, {}},
                                   {{1, 4, 8, 9}, {6, 2, 3, 2}, {.strides = {2, 1}, .low = {1, 0}, .high = {2, 1}, .dilation = {1, 2}, .groups = 2}},
                                   {{1, 2, 4, 5, 4}, {3, 2, 2, 3, 2}, {.strides = {1, 2, 1}}}}) {
    Graph g;
    Node x = g.input("x", DType::F32, c.x), w = g.input("w", DType::F32, c.w);
    Node y = conv(x, w, c.attrs), loss = sum(y * y, axes_up_to(y.rank()));
    g.set_outputs({y});
    Nodes d = grad(loss, {x, w});
    g.set_outputs({y, d[0], d[1]});
    auto report = expect_same(g, random_inputs(g), 1e-4);
    EXPECT_EQ(report.find("(interpreted)\n"), std::string::npos) << report;
  }
}

TEST(Cpu, TransposedOperandsAreStrides) {
  Graph g;
  Node q = g.input("q", DType::F32, {2, 16, 4 * 8}), k = g.input("k", DType::F32, {2, 16, 4 * 8});
  auto heads = [](Node x) { return transpose(reshape(x, {2, 16, 4, 8}), {0, 2, 1, 3}); };
  Node scores = matmul(heads(q), transpose(heads(k), {0, 1, 3, 2}));
  Node out = reshape(transpose(matmul(scores, heads(k)), {0, 2, 1, 3}), {2, 16, 32});
  g.set_outputs({out * 2, grad(sum(out * out, {0, 1, 2}), {q})[0]});
  auto report = expect_same(g, random_inputs(g), 1e-4);
  EXPECT_EQ(report.find("copy"), std::string::npos) << report;
}

TEST(Cpu, SixteenBitFloats) {
  for (DType d : {DType::BF16, DType::F16}) {
    Graph g;
    Node x = g.input("x", d, {3, 50});
    g.set_outputs({exp(x) * 2, cast(x, DType::F32) + 1, sum(x, {1}), cast(cast(x, DType::F32) * 3, d)});
    expect_same(g, random_inputs(g), d == DType::BF16 ? 1e-2 : 2e-3);
  }
}

TEST(Cpu, BooleansAndSmallIntegers) {
  Graph g;
  Node x = g.input("x", DType::F32, {4, 37}), c = g.input("c", DType::Bool, {4, 1});
  Node codes = minimum(maximum(round(x * 60), -128), 127);
  g.set_outputs({where(c, x, -x), (x > 0) & (x < 1), any(x > 1.9, {1}), all(x > -1.99, {0}), cast(codes, DType::I8), cast(x * 100, DType::I8), cast(cast(codes, DType::I8), DType::F32) / 60,
                 matmul(cast(codes, DType::I8), transpose(cast(codes, DType::I8), {1, 0}), DType::I32)});
  expect_same(g, random_inputs(g));
}

TEST(Cpu, GatherAndScatterCheckTheirIndices) {
  Graph g;
  Node table = g.input("table", DType::F32, {6, 8}), i = g.input("i", DType::I32, {2, 3});
  Node rows = gather(table, i, 0);
  g.set_outputs({rows * 2, grad(sum(rows * rows, {0, 1, 2}), {table})[0]});
  ArrayMap in{{"table", random_array(DType::F32, {6, 8}, 1)}, {"i", Array(std::vector<std::int32_t>{0, 5, -1, 2, 2, 2}, {2, 3})}};
  auto report = expect_same(g, in);
  EXPECT_EQ(report.find("(interpreted)"), std::string::npos) << report;
  in["i"].values<std::int32_t>()[3] = 6;
  auto cpu = Session(Device::cpu()).compile(g);
  try {
    cpu.run(in);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("index 6 is outside [-6, 6)"), std::string::npos) << e.what();
  }
}

TEST(Cpu, ACrossEntropyStepIsFused) {
  Graph g;
  Node logits = g.input("logits", DType::F32, {6, 33}), labels = g.input("labels", DType::I32, {6});
  Node loss = cross_entropy(logits, labels);
  g.set_outputs({loss, grad(loss, {logits})[0]});
  ArrayMap in{{"logits", random_array(DType::F32, {6, 33}, 1)}, {"labels", Array(std::vector<std::int32_t>{0, 32, 5, -100, 7, 7}, {6})}};
  auto report = expect_same(g, in);
  EXPECT_EQ(report.find("gather_elements %"), std::string::npos) << report;
  in["labels"].values<std::int32_t>()[2] = 33;
  auto cpu = Session(Device::cpu()).compile(g);
  auto says = [&](const char* text) {
    try {
      cpu.run(in);
      ADD_FAILURE() << "no error";
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
  };
  says("index 33 of row 2 is out of range [0, 33)");
  says("by body of cross_entropy");
  in["labels"].values<std::int32_t>()[2] = -1;
  says("index -1 of row 2 is out of range [0, 33)");
}

TEST(Cpu, AMeanInF64IsTheSameEverywhere) {
  for (std::int64_t n : {1, 100, 4096, 5000, 70001}) {
    Graph g;
    Node w = g.input("w", DType::F32, {n});
    g.set_outputs({cast(mean(cast(abs(w), DType::F64), {0}), DType::F32), mean(abs(cast(w, DType::F64)), {0})});
    EXPECT_EQ(expect_same(g, random_inputs(g)).find("abs %"), std::string::npos);
    auto in = random_inputs(g);
    auto a = Session(Device::reference()).compile(g).run(in), b = Session(Device::cpu()).compile(g).run(in);
    EXPECT_TRUE(identical(a[0], b[0]) && identical(a[1], b[1])) << n;
  }
}

TEST(Cpu, WhatDependsOnParamsIsKept) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 8}), w = g.param("w", DType::F32, {8, 8});
  g.set_outputs({matmul(x, exp(w))});
  auto cpu = Session(Device::cpu()).compile(g);
  Array in = random_array(DType::F32, {2, 8}, 1);
  cpu.set_param("w", Array(DType::F32, {8, 8}));
  auto first = cpu.run({{"x", in}})[0].at(0);
  Array ones(DType::F32, {8, 8});
  for (auto& v : ones.values<float>()) v = 1;
  cpu.set_param("w", ones);
  EXPECT_NEAR(cpu.run({{"x", in}})[0].at(0), first * std::exp(1.0), 1e-4);
  EXPECT_NE(cpu.report().find("kept rows"), std::string::npos) << cpu.report();
}

// Values of one param, of two, padded, joined, and of values that are kept themselves; changed in turns.
TEST(Cpu, KeptValuesFollowEachOfTheirParams) {
  Graph g;
  Node x = g.input("x", DType::F32, {2, 8});
  Nodes p;
  for (const char* name : {"a", "b", "c"}) p.push_back(g.param(name, DType::F32, {8, 8}));
  Node ab = exp(p[0]) + p[1], joined = concat(std::vector<Node>{exp(p[1]), tanh(p[2]), p[0]}, 1);
  Node padded = pad(exp(p[2]), {1, 0}, {0, 3}, 0.5);
  g.set_outputs({matmul(x, ab), matmul(x, joined), sum(padded, {0}), matmul(x, matmul(ab, transpose(p[2], {1, 0}))), sum(p[1], {0, 1})});
  auto cpu = Session(Device::cpu()).compile(g), reference = Session(Device::reference()).compile(g);
  ArrayMap in = random_inputs(g);
  auto set = [&](const std::string& name, unsigned seed) {
    Array value = random_array(DType::F32, {8, 8}, seed);
    for (auto* each : {&cpu, &reference}) {
      if (seed % 3 == 0) each->bind_resident(name, value);
      else each->set_param(name, value);
    }
  };
  for (const char* name : {"a", "b", "c"}) set(name, 1);
  for (unsigned round = 0; round < 12; ++round) {
    set(std::string(1, "abc"[round * 7 % 5 % 3]), round + 2);
    auto got = cpu.run(in), expected = reference.run(in);
    for (std::size_t i = 0; i < got.size(); ++i)
      for (std::int64_t k = 0; k < got[i].size(); ++k) ASSERT_NEAR(got[i].at(k), expected[i].at(k), 1e-3) << round << " output " << i;
  }
}

TEST(Cpu, SymbolsTakeAnySize) {
  Graph g;
  Dim n = Dim::symbol("n");
  Node x = g.input("x", DType::F32, {n, 4});
  g.set_outputs({softmax(matmul(x, transpose(x, {1, 0})))});
  for (std::int64_t size : {3, 1, 50, 3, 0}) expect_same(g, random_inputs(g, {{"n", size}}));
}

TEST(Cpu, ThreadCountDoesNotChangeABit) {
  Graph g;
  Node x = g.input("x", DType::F32, {300, 700}), w = g.input("w", DType::F32, {700, 90});
  Node y = softmax(matmul(tanh(x), w));
  Node loss = mean(y * y, {0, 1});
  g.set_outputs({loss, grad(loss, {w})[0], sum(x, {0}), sum(x * x, {0, 1})});
  auto in = random_inputs(g);
  int threads = num_threads();
  std::vector<std::vector<Array>> results;
  for (int n : {1, 2, 5}) {
    set_num_threads(n);
    results.push_back(Session(Device::cpu()).compile(g).run(in));
  }
  set_num_threads(threads);
  for (std::size_t o = 0; o < 4; ++o) EXPECT_TRUE(identical(results[0][o], results[1][o]) && identical(results[0][o], results[2][o])) << o;
}

}  // namespace
