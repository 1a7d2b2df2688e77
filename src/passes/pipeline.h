// Lists of named passes, and running one.
#pragma once
#include "passes/passes.h"

namespace rlx {

struct Pass {
  std::string name;
  std::function<Rewritten(const Graph&)> run;
};
/// What compilation for a CPU runs, in order. `claims`: the composites that the backend has a kernel for.
std::vector<Pass> cpu_passes(std::function<bool(Node)> claims);

struct PassReport {
  std::string name;
  bool changed = false;
  double seconds = 0;
  int nodes_before = 0, nodes_after = 0;
  Fired fired;
};
struct PipelineOptions {
  std::string name = "graph";  // what prints and dumps call it
  bool verify = false;         // after each pass
};
struct PipelineResult {
  Graph graph;
  std::vector<PassReport> passes;
};
/// Runs the passes one after another. An error is rethrown with the pass's name before it. With RLX_DEBUG at 3 it
/// prints each pass's time and the graph where it changed, at 5 how often each rule fired; with RLX_DUMP it writes
/// them.
PipelineResult run_passes(const Graph& graph, const std::vector<Pass>& passes, const PipelineOptions& options = {});
/// One line a pass.
std::string to_string(const std::vector<PassReport>& passes);
/// One line a node, large constants left out: for reading, not for reading back.
std::string brief_text(const Graph& graph);

}  // namespace rlx
