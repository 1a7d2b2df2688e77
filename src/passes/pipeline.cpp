#include "passes/pipeline.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>

#include "base/env.h"
#include "base/file.h"
#include "ir/graph_data.h"

namespace rlx {

std::vector<Pass> cpu_passes(std::function<bool(Node)> claims) {
  auto claimed = [claims = std::move(claims)](const Graph& graph) { return legalize(graph, claims); };
  return {
      {"simplify", simplify},
      {"collapse_straight_through", collapse_straight_through},
      {"drop_stop_gradients", drop_stop_gradients},
      {"use_integer_matmul", use_integer_matmul},  // before anything takes its patterns apart
      {"fold_constants", [](const Graph& graph) { return fold_constants(graph); }},
      {"legalize", claimed},
      {"use_bf16_matmul", use_bf16_matmul},
      {"simplify", simplify},
      {"fold_constants", [](const Graph& graph) { return fold_constants(graph); }},
      {"eliminate_dead_code", [](const Graph& graph) { return eliminate_dead_code(graph); }},
  };
}

std::string brief_text(const Graph& graph) {
  std::string out;
  for (int id = 0; id < graph.size(); ++id) {
    Node n = graph.node(id);
    std::string inputs, attrs;
    for (auto& in : n.inputs()) inputs += fmt::format("{}%{}", inputs.empty() ? "" : ", ", in.id());
    if (n.is(constant_op) && n.attrs<ConstantAttrs>().value.size() == 1)
      attrs = expression(n);
    else if (!n.is(constant_op) && !n.is(input_op) && !n.is(param_op))
      attrs = n.attrs().text();
    out += fmt::format("{} = {}({}){}\n", n.text(), n.op().name, inputs, attrs.empty() ? "" : " {" + attrs + "}");
  }
  out += "outputs";
  for (auto& n : graph.outputs()) out += fmt::format(" %{}", n.id());
  return out + "\n";
}

std::string to_string(const std::vector<PassReport>& passes) {
  std::string out;
  for (auto& pass : passes)
    out += fmt::format("{:<28}{:>8.2f} ms  {}\n", pass.name, pass.seconds * 1e3,
                       pass.changed ? fmt::format("{} -> {} nodes", pass.nodes_before, pass.nodes_after) : "unchanged");
  return out;
}

namespace {

PassReport run_pass(const Pass& pass, Graph& graph, const PipelineOptions& options) {
  PassReport report{pass.name, false, 0, graph.size(), 0, {}};
  auto in_pass = [&](const Error& e) { return fmt::format("pass {}: {}", pass.name, e.what()); };
  try {
    auto start = std::chrono::steady_clock::now();
    Rewritten out = pass.run(graph);
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    report.changed = !same(out.graph, graph);
    report.fired = std::move(out.fired);
    graph = out.graph;
    report.nodes_after = graph.size();
    if (options.verify && report.changed) graph.verify();
  } catch (const UserError& e) {
    throw UserError(in_pass(e));
  } catch (const Unsupported& e) {
    throw Unsupported(in_pass(e));
  } catch (const InternalError& e) {
    throw InternalError(in_pass(e));
  }
  return report;
}

void print(const PassReport& report, const Graph& graph, const PipelineOptions& options, int level) {
  std::string text = fmt::format("[{}] {}", options.name, to_string({report}));
  if (level >= 5)
    for (auto& [rule, times] : report.fired) text += fmt::format("    {} x {}\n", times, rule);
  if (report.changed) text += brief_text(graph);
  std::fputs(text.c_str(), stderr);
}

void dump(const std::string& folder, std::size_t number, const PassReport& report, const Graph& graph,
          const PipelineOptions& options) {
  std::filesystem::create_directories(folder);
  write_file_atomic(fmt::format("{}/{}.{:02}.{}.rlx", folder, options.name, number, report.name), graph.text());
}

}  // namespace

PipelineResult run_passes(const Graph& graph, const std::vector<Pass>& passes, const PipelineOptions& options) {
  PipelineResult out{graph, {}};
  int level = debug_level();
  std::string folder = env("RLX_DUMP");
  for (auto& pass : passes) {
    out.passes.push_back(run_pass(pass, out.graph, options));
    if (level >= 3) print(out.passes.back(), out.graph, options, level);
    if (!folder.empty() && out.passes.back().changed)
      dump(folder, out.passes.size(), out.passes.back(), out.graph, options);
  }
  return out;
}

}  // namespace rlx
