// Copying a graph while replacing some of its nodes: what every pass stands on.
#include <fmt/format.h>

#include <algorithm>

#include "ir/graph_data.h"
#include "rewrite/rewrite.h"

namespace rlx {
namespace {

bool is_leaf(Node node) { return node.is(input_op) || node.is(param_op); }

// What `roots` and the leaves need.
std::vector<bool> reach(const Graph& graph, const Nodes& roots) {
  std::vector<bool> out(std::size_t(graph.size()));
  for (auto& root : roots)
    if (root) out[std::size_t(root.id())] = true;
  for (int id = graph.size() - 1; id >= 0; --id) {
    Node node = graph.node(id);
    if (is_leaf(node) || (node.is(constant_op) && !node.name().empty()))
      out[std::size_t(id)] = true;  // a weight by its name
    if (out[std::size_t(id)])
      for (auto& in : node.inputs()) out[std::size_t(in.id())] = true;
  }
  return out;
}

Rebuilt start(const Graph& source) {
  Rebuilt out{Graph(), Nodes(std::size_t(source.size()))};
  out.graph.data().next_stream = source.data().next_stream;
  return out;
}
Node copy_of(Node node, Rebuilt& into) {
  Nodes inputs;
  inputs.reserve(node.inputs().size());
  for (auto& in : node.inputs()) inputs.push_back(into.copies[std::size_t(in.id())]);
  return copy_node(node, into.graph, std::move(inputs));
}
Nodes mapped(const Nodes& nodes, const Nodes& copies) {
  Nodes out;
  for (auto& n : nodes) out.push_back(n ? copies[std::size_t(n.id())] : none);
  return out;
}

}  // namespace

Node find_gradient(const Graph& graph) {
  for (int id = 0; id < graph.size(); ++id)
    for (auto& origin : graph.node(id).origins())
      if (origin == "grad" || origin.starts_with("grad, by ")) return graph.node(id);
  return none;
}

std::vector<bool> needed_nodes(const Graph& graph) { return reach(graph, graph.outputs()); }

Rebuilt rebuild(const Graph& source, const std::function<Replaced(Node, Node)>& f, Keep keep) {
  Rebuilt out = start(source);
  std::vector<bool> wanted =
      keep == Keep::All ? std::vector<bool>(std::size_t(source.size()), true) : needed_nodes(source);
  bool replaced = false;
  for (int id = 0; id < source.size(); ++id) {
    if (!wanted[std::size_t(id)]) continue;
    Node original = source.node(id), copy = copy_of(original, out);
    Replaced next = f(copy, original);
    if (next.node && !same(next.node, copy)) {
      if (next.node.type() != copy.type())
        throw InternalError(
            fmt::format("{}: would change {} to {}", next.rule, original.text(), to_string(next.node.type())));
      out.graph.inherit(next.node, copy, next.rule);
      copy = next.node;
      replaced = true;
    }
    out.copies[std::size_t(id)] = copy;
  }
  out.graph.set_outputs(mapped(source.outputs(), out.copies));
  if (!replaced) return out;
  // Leave out what was replaced, which still has the names.
  Rebuilt clean = start(out.graph);
  wanted = reach(out.graph, keep == Keep::All ? out.copies : out.graph.outputs());
  for (int id = 0; id < out.graph.size(); ++id)
    if (wanted[std::size_t(id)]) clean.copies[std::size_t(id)] = copy_of(out.graph.node(id), clean);
  clean.graph.set_outputs(mapped(out.graph.outputs(), clean.copies));
  clean.copies = mapped(out.copies, clean.copies);
  return clean;
}

Rewritten expand_bodies(const Graph& graph, const std::function<bool(Node)>& which, Keep keep) {
  Rewritten out{graph, {}};
  auto wanted = [&](Node n) { return n.op().body && which(n); };
  for (int round = 0;; ++round) {
    std::vector<bool> needed = needed_nodes(out.graph);
    bool any = false;
    for (int id = 0; id < out.graph.size() && !any; ++id)
      any = (keep == Keep::All || needed[std::size_t(id)]) && wanted(out.graph.node(id));
    if (!any) return out;
    if (round == 100) throw InternalError("expand_bodies: bodies that contain themselves");
    out.graph = rebuild(
                    out.graph,
                    [&](Node copy, Node) -> Replaced {
                      if (!wanted(copy)) return {};
                      std::string rule = fmt::format("body of {}", copy.op().name);
                      Graph target = copy.graph();
                      target.set_origin(origin_by(copy, rule));
                      Nodes inputs = copy.inputs();
                      Node body = copy.op().body({inputs, copy.attrs(), copy.op()});
                      target.set_origin("");
                      ++out.fired[rule];
                      return {body, rule};
                    },
                    keep)
                    .graph;
  }
}

}  // namespace rlx
