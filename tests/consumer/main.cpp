// The smallest program that uses an installed RLX: a layer, built, compiled and run.
#include <rlx/rlx.h>

#include <cstdio>

int main() try {
  rlx::Graph graph;
  rlx::Node x = graph.input("x", rlx::DType::F32, {rlx::Dim::symbol("batch"), 4});
  rlx::Node w = graph.param("w", rlx::DType::F32, {4, 2});
  graph.set_outputs({relu(matmul(x, w) + 1)});

  rlx::CompiledGraph program = rlx::Session(rlx::Device::cpu()).compile(graph);
  program.set_param("w", std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  rlx::Array y = program.run({{"x", rlx::Array(std::vector<float>{1, 0, 0, 1}, {1, 4})}})[0];
  std::printf("%s: %g %g\n", rlx::to_string(y.type()).c_str(), y.at(0), y.at(1));
  return y.at(0) == 9 && y.at(1) == 11 ? 0 : 1;
} catch (const rlx::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
