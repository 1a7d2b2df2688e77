// The reverse sweep. The rules are in the op rows; here is only the order and the accumulation.
#include <fmt/format.h>

#include <map>
#include <set>

#include "ir/graph_data.h"
#include "rlx/ops.h"
#include "rlx/transform.h"

namespace rlx {
namespace {

Node zeros_like(Node x) { return expand(x.graph().constant(0, x.dtype()), x.shape()); }

// Undoes a broadcast: sums dy over the axes that `like` was stretched along, in the wider of the two dtypes.
Node sum_to(Node dy, const Type& like) {
  if (DType wide = promote(dy.dtype(), like.dtype); dy.dtype() != wide) dy = cast(dy, wide);
  if (dy.dtype() != like.dtype) return cast(sum_to(dy, {dy.dtype(), like.shape}), like.dtype);
  if (dy.shape() == like.shape) return dy;
  Axes axes;
  std::size_t extra = dy.shape().size() - like.shape.size();
  for (std::size_t i = 0; i < dy.shape().size(); ++i)
    if (i < extra || (like.shape[i - extra] == Dim(1) && !(dy.shape()[i] == Dim(1)))) axes.push_back(int(i));
  if (axes.empty()) return reshape(dy, like.shape);
  return reshape(sum(dy, axes, false), like.shape);
}

// Codes carry the cotangent of the values that they stand for.
bool carries_cotangent(Node x) { return is_float(x.dtype()) || x.op().codes; }
Type cotangent_type(Node x) { return {is_float(x.dtype()) ? x.dtype() : DType::F32, x.shape()}; }

// The nodes on a way from one of `wrt` to `root`.
std::set<int> nodes_between(Node root, std::span<const Node> wrt) {
  Graph graph = root.graph();
  std::set<int> out;
  for (auto& w : wrt) out.insert(w.id());
  int first = out.empty() ? root.id() : *out.begin();
  for (int id = first; id <= root.id(); ++id)
    for (auto& in : graph.node(id).inputs())
      if (out.contains(in.id())) out.insert(id);
  return out;
}

std::vector<Node> pull_back(Node root, Node seed, std::span<const Node> wrt, bool stop_at_wrt);

Nodes cotangents_of_inputs(Node y, Node dy) {
  const Nodes in = y.inputs();
  auto input = [&](std::size_t i) { return i < in.size() ? in[i] : none; };
  if (y.op().grad) return y.op().grad({in, input(0), input(0), input(1), input(2), y, dy, y.attrs(), y.op()});
  if (y.op().body) return pull_back(y.op().body({in, y.attrs(), y.op()}), dy, in, true);
  return {};
}

// Cotangents of `wrt` given the root's; none for one that the root does not depend on. In a body's sweep the inputs of
// the composite are where it stops.
std::vector<Node> pull_back(Node root, Node seed, std::span<const Node> wrt, bool stop_at_wrt) {
  Graph graph = root.graph();
  std::set<int> between = nodes_between(root, wrt);
  std::map<int, Node, std::greater<>> pending{{root.id(), seed}};
  std::map<int, Node> done;
  std::set<int> wanted;
  for (auto& w : wrt) wanted.insert(w.id());
  while (!pending.empty()) {
    auto [id, dy] = *pending.begin();
    pending.erase(pending.begin());
    Node y = graph.node(id);
    if (wanted.contains(id)) {
      done[id] = dy;
      if (stop_at_wrt) continue;
    }
    if (!between.contains(id)) continue;
    const Nodes in = y.inputs();
    Nodes d = cotangents_of_inputs(y, dy);
    for (std::size_t i = 0; i < d.size() && i < in.size(); ++i) {
      if (!d[i] || !carries_cotangent(in[i]) || !between.contains(in[i].id())) continue;
      Type type = cotangent_type(in[i]);
      Node part = d[i].is_number() ? expand(graph.constant(d[i].number(), type.dtype), type.shape) : d[i];
      part = sum_to(part, type);
      auto [it, fresh] = pending.try_emplace(in[i].id(), part);
      if (!fresh) it->second = it->second + part;
    }
  }
  std::vector<Node> out;
  for (auto& w : wrt) {
    auto it = done.find(w.id());
    out.push_back(it == done.end() ? none : it->second);
  }
  return out;
}

// Says where the nodes of a sweep come from, unless the caller does.
class Origin {
 public:
  explicit Origin(Graph graph) : graph_(graph), before_(graph.origin()) {
    if (before_.empty()) graph_.set_origin("grad");
  }
  ~Origin() { graph_.set_origin(before_); }

 private:
  Graph graph_;
  std::string before_;
};

}  // namespace

Nodes grad(Node y, const Nodes& wrt, Node dy) {
  if (!is_float(y.dtype())) throw UserError("grad: needs a float to differentiate, got " + y.text());
  for (auto& w : wrt)
    if (!same(w.graph(), y.graph()) || !is_float(w.dtype()))
      throw UserError("grad: can only differentiate by a float of the same graph, got " + w.text());
  if (!dy) dy = expand(y.graph().constant(1, y.dtype()), y.shape());
  if (dy.is_number()) dy = expand(y.graph().constant(dy.number(), y.dtype()), y.shape());
  if (dy.type() != y.type()) throw UserError(fmt::format("grad: the cotangent is {}, expected {}", dy.text(), to_string(y.type())));
  Origin origin(y.graph());
  Nodes out = pull_back(y, dy, wrt, false);
  for (std::size_t i = 0; i < wrt.size(); ++i)
    if (!out[i]) out[i] = zeros_like(wrt[i]);
  return out;
}

Graph grad_with_loss(const Graph& graph, const Nodes& wrt) {
  if (graph.outputs().empty()) throw UserError("grad_with_loss: the graph has no output to differentiate");
  Graph out;
  Nodes copies = copy_nodes(graph, out);
  Node loss = copies[std::size_t(graph.outputs()[0].id())];
  Nodes leaves;
  for (auto& w : wrt) {
    if (!w || !same(w.graph(), graph)) throw UserError("grad_with_loss: " + w.text() + " is not a node of the graph");
    leaves.push_back(copies[std::size_t(w.id())]);
  }
  std::string name = "d_output";
  for (int n = 2; out.find_leaf(name); ++n) name = fmt::format("d_output_{}", n);
  Node seed = out.input(name, loss.type());
  out.set_origin("grad");
  Nodes outputs = grad(loss, leaves, seed);
  out.set_origin("");
  outputs.insert(outputs.begin(), loss);
  out.set_outputs(std::move(outputs));
  return out;
}

Graph grad_with_loss(const Graph& graph, const std::vector<std::string>& wrt) {
  Nodes nodes;
  for (auto& name : wrt) {
    nodes.push_back(graph.find_leaf(name));
    if (!nodes.back()) throw UserError(fmt::format("grad_with_loss: the graph has no leaf \"{}\"", name));
  }
  return grad_with_loss(graph, nodes);
}

Node jvp(Node y, const Nodes& wrt, const Nodes& tangents) {
  if (wrt.size() != tangents.size()) throw UserError(fmt::format("jvp: got {} tangents for {} nodes", tangents.size(), wrt.size()));
  // The sweep is linear in its seed u: the derivative of <Jᵀu, t> by u is J t.
  Graph graph = y.graph();
  std::string name = "jvp_seed";
  for (int n = 2; graph.find_leaf(name); ++n) name = fmt::format("jvp_seed_{}", n);
  Node u = graph.input(name, y.type());
  Nodes back = pull_back(y, u, wrt, false);
  Node total = none;
  for (std::size_t i = 0; i < wrt.size(); ++i) {
    if (!back[i]) continue;
    Axes all;
    for (int d = 0; d < back[i].rank(); ++d) all.push_back(d);
    Node term = sum(back[i] * tangents[i], all, false);
    total = total ? total + term : term;
  }
  return total ? grad(total, {u})[0] : zeros_like(y);
}

Nodes hvp(Node y, const Nodes& wrt, const Nodes& v) {
  if (wrt.size() != v.size()) throw UserError(fmt::format("hvp: got {} vectors for {} nodes", v.size(), wrt.size()));
  Nodes first = grad(y, wrt);
  Node total = none;
  for (std::size_t i = 0; i < wrt.size(); ++i) {
    Axes all;
    for (int d = 0; d < first[i].rank(); ++d) all.push_back(d);
    Node term = sum(first[i] * stop_gradient(v[i]), all, false);
    total = total ? total + term : term;
  }
  return total ? grad(total, wrt) : Nodes{};
}

}  // namespace rlx
