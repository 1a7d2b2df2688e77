// Pools and their gradients on the cpu device against the interpreter, which is compared with PyTorch elsewhere.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "rlx/op_attrs.h"
#include "rlx/ops.h"
#include "rlx/session.h"
#include "rlx/transform.h"

using namespace rlx;

namespace {

struct Case {
  Shape x;
  PoolAttrs pool;
};
std::vector<Case> cases() {
  auto pool = [](Extents kernel, Extents strides, Extents low = {}, Extents high = {}, Extents dilation = {}, bool ceil = false) {
    PoolAttrs p;
    p.kernel = kernel, p.strides = strides, p.low = low, p.high = high, p.dilation = dilation, p.ceil_mode = ceil;
    return p;
  };
  return {
      {{2, 3, 11}, pool({3}, {2}, {1}, {1})},
      {{2, 5, 8, 9}, pool({2, 2}, {2, 2})},
      {{3, 2, 7, 10}, pool({3, 2}, {2, 3}, {1, 0}, {1, 1}, {}, true)},
      {{1, 2, 9, 9}, pool({2, 3}, {1, 1}, {0, 2}, {1, 1}, {3, 2})},
      {{1, 2, 4, 5, 6}, pool({2, 2, 3}, {2, 1, 2})},
  };
}
Array numbers(const Shape& shape, DType dtype) {
  Array out(DType::F32, to_extents(shape));
  std::uint32_t seed = 9;
  for (float& v : out.values<float>()) {
    seed = seed * 1664525u + 1013904223u;
    v = std::round((float(seed >> 8) / 16777216.0f - 0.5f) * 64) / 8;  // equal ones, so that the first counts
  }
  return out.cast(dtype);
}
// Both devices give the same, and the cpu interprets nothing.
void expect_same(const Graph& graph, const ArrayMap& feeds, double tolerance) {
  auto reference = Session(Device::reference()).compile(graph).run(feeds);
  CompiledGraph compiled = Session(Device::cpu()).compile(graph);
  auto cpu = compiled.run(feeds);
  EXPECT_NE(compiled.report().find("(0 interpreted)"), std::string::npos) << compiled.report();
  for (std::size_t k = 0; k < cpu.size(); ++k)
    for (std::int64_t i = 0; i < cpu[k].size(); ++i) {
      double a = cpu[k].at(i), b = reference[k].at(i);
      if (std::isnan(b)) EXPECT_TRUE(std::isnan(a)) << k << " " << i;
      else EXPECT_LE(std::abs(a - b), tolerance * std::abs(b)) << k << " " << i;
    }
}

}  // namespace

TEST(CpuPool, ValuesPlacesAndGradients) {
  for (auto& c : cases())
    for (DType dtype : {DType::F32, DType::BF16, DType::F16})
      for (bool count_pad : {false, true}) {
        Graph g;
        Node x = g.input("x", dtype, c.x);
        PoolAttrs mean = c.pool;
        mean.count_include_pad = count_pad;
        Nodes values{max_pool(x, c.pool), avg_pool(x, mean)}, outputs = values;
        outputs.push_back(max_pool_indices(x, c.pool));
        for (Node y : values) {
          Node dy = g.input("dy" + std::to_string(outputs.size()), y.type());
          outputs.push_back(grad(y, {x}, dy)[0]);
        }
        g.set_outputs(outputs);
        ArrayMap feeds{{"x", numbers(c.x, dtype)}};
        for (Node in : g.inputs())
          if (in.name() != "x") feeds.emplace(in.name(), numbers(in.shape(), dtype));
        double ulp = dtype == DType::F32 ? 0x1p-23 : dtype == DType::F16 ? 0x1p-10 : 0x1p-7;
        expect_same(g, feeds, 2 * ulp);
      }
}

TEST(CpuPool, NanIsTheLargest) {
  Graph g;
  Node x = g.input("x", DType::F32, {1, 1, 6});
  PoolAttrs pool;
  pool.kernel = {3}, pool.strides = {1};
  g.set_outputs({max_pool(x, pool), max_pool_indices(x, pool), avg_pool(x, pool)});
  float nan = std::nanf("");
  expect_same(g, {{"x", Array(std::vector<float>{1, nan, 3, 2, 2, 1}, {1, 1, 6})}}, 0);
}

TEST(CpuPool, ScattersAlongRows) {
  for (auto mode : {ScatterMode::Add, ScatterMode::Set}) {
    Graph g;
    Node x = g.input("x", DType::F32, {2, 4}), i = g.input("i", DType::I64, {2, 3}), u = g.input("u", DType::F32, {2, 3});
    g.set_outputs({scatter_elements(x, i, u, -1, mode)});
    ArrayMap feeds{{"x", numbers({2, 4}, DType::F32)},
                   {"i", Array(std::vector<std::int64_t>{0, -1, 0, 3, 2, -2}, {2, 3})},
                   {"u", numbers({2, 3}, DType::F32)}};
    expect_same(g, feeds, 1e-6);
    feeds.at("i") = Array(std::vector<std::int64_t>{0, 1, 2, 3, 4, 0}, {2, 3});
    for (Device device : {Device::reference(), Device::cpu()}) {
      CompiledGraph c = Session(device).compile(g);
      EXPECT_THROW(c.run(feeds), UserError) << device.name;
    }
  }
}
