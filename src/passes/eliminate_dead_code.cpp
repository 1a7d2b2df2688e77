#include "ir/graph_data.h"
#include "passes/passes.h"

namespace rlx {

Rewritten eliminate_dead_code(const Graph& graph, bool drop_leaves) {
  std::vector<bool> live(std::size_t(graph.size()));
  for (auto& n : graph.outputs()) live[std::size_t(n.id())] = true;
  for (int id = graph.size() - 1; id >= 0; --id) {
    Node n = graph.node(id);
    if (!drop_leaves && (n.is(input_op) || n.is(param_op))) live[std::size_t(id)] = true;
    if (live[std::size_t(id)])
      for (auto& in : n.inputs()) live[std::size_t(in.id())] = true;
  }
  int dead = 0;
  for (bool is_live : live) dead += !is_live;
  if (dead == 0) return {graph, {}};
  Graph out;
  out.data().next_stream = graph.data().next_stream;
  Nodes copies(std::size_t(graph.size())), outputs;
  for (int id = 0; id < graph.size(); ++id) {
    if (!live[std::size_t(id)]) continue;
    Nodes inputs;
    for (auto& in : graph.node(id).inputs()) inputs.push_back(copies[std::size_t(in.id())]);
    copies[std::size_t(id)] = copy_node(graph.node(id), out, std::move(inputs));
  }
  for (auto& n : graph.outputs()) outputs.push_back(copies[std::size_t(n.id())]);
  out.set_outputs(std::move(outputs));
  return {out, {{"eliminate_dead_code", dead}}};
}

}  // namespace rlx
