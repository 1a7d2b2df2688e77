// Matmuls with a Param become codebook layers: the weight is put together from at most 256 entries.
#include <fmt/format.h>

#include <algorithm>

#include "ops/rules.h"
#include "passes/weights.h"
#include "rewrite/rewrite.h"
#include "rlx/op_attrs.h"
#include "rlx/optim.h"
#include "rlx/transform.h"

namespace rlx {
namespace {

constexpr std::string_view kPass = "insert_codebooks";

bool fits_any(std::string_view name, const std::vector<std::string>& patterns) {
  return std::ranges::any_of(patterns, [&](auto& p) { return fits_pattern(name, p); });
}

void check(const Graph& graph, const CodebookConfig& config) {
  if (config.entry_dim < 1)
    throw UserError(fmt::format("[{}] got entry_dim {}, expected 1 or more", kPass, config.entry_dim));
  if (config.num_entries < 1 || config.num_entries > 256)
    throw UserError(
        fmt::format("[{}] got num_entries {}, expected 1 to 256: an index is one byte", kPass, config.num_entries));
  for (auto* patterns : {&config.weights, &config.keep})
    for (auto& pattern : *patterns) {
      bool found = pattern == "*";
      for (auto& p : graph.params()) found |= fits_pattern(p.name(), pattern);
      if (!found)
        throw UserError(fmt::format("[{}] {}: the graph has no param \"{}\"", kPass,
                                    patterns == &config.keep ? "keep" : "weights", pattern));
    }
}

// One matmul that may become a codebook layer.
struct Layer {
  Node matmul, weight;
  int out_axis = 1;
};

class Chooser {
 public:
  Chooser(const Graph& graph, const CodebookConfig& config)
      : config_(config), needed_(needed_nodes(graph)), users_(std::size_t(graph.size())) {
    for (int id = 0; id < graph.size(); ++id)
      if (needed_[std::size_t(id)])
        for (auto& in : graph.node(id).inputs()) users_[std::size_t(in.id())].push_back(graph.node(id));
    for (int id = 0; id < graph.size(); ++id)
      if (needed_[std::size_t(id)]) consider(graph.node(id));
    for (auto& layer : layers_) {
      if (std::string reason = shared_reason(graph, layer); !reason.empty())
        skip(layer.matmul, reason);
      else
        choose(layer);
    }
    // In the order of the graph, whichever check it was.
    std::ranges::stable_sort(skipped_, {}, [](auto& s) { return s.first; });
    for (auto& [id, s] : skipped_) report.skipped.push_back(s);
  }

  std::map<int, Layer> chosen;  // by the matmul's id
  CodebookReport report;

 private:
  void skip(Node n, std::string reason) { skipped_.push_back({n.id(), {report_label(n), std::move(reason)}}); }

  void consider(Node n) {
    if (!takes_weight(n)) return;
    Node at = n.input(1);
    int swaps = 0;
    for (; at.is(ops::transpose) || at.is(ops::cast); at = at.input(0))
      swaps += at.is(ops::transpose) && at.rank() == 2 && normalize_perm(at.attrs<PermAttrs>().perm, 2)[0] == 1;
    if (!at.is(param_op)) return skip(n, fmt::format("its weight operand is {}, no param", report_label(at)));
    if (!fits_any(at.name(), config_.weights)) return;  // not asked for
    std::string reason = own_reason(n, at, swaps % 2 == 1 ? 0 : 1);
    if (!reason.empty()) return skip(n, reason);
    layers_.push_back({n, at, swaps % 2 == 1 ? 0 : 1});
  }

  // Why a matmul alone cannot be a codebook layer.
  std::string own_reason(Node n, Node w, int out_axis) const {
    if (fits_any(w.name(), config_.keep)) return fmt::format("{} is kept", w.name());
    if (!n.is(ops::matmul))
      return fmt::format("{} is read by a {}, and only matmuls are replaced", w.name(), n.op().name);
    if (!is_float(w.dtype())) return fmt::format("{} is {}, not a float", w.name(), to_string(w.dtype()));
    if (w.rank() != 2 || !is_static(w.shape()))
      return fmt::format("{} is {}, not a matrix of known sizes", w.name(), to_string(w.shape()));
    std::int64_t n_out = w.dim(out_axis).number(), k = w.dim(1 - out_axis).number();
    if (k % config_.entry_dim != 0)
      return fmt::format("entry_dim {} does not divide the {} inputs of {}", config_.entry_dim, k, w.name());
    if (n_out * k / config_.entry_dim < config_.num_entries)
      return fmt::format("{} has {} vectors of {}, fewer than num_entries {}", w.name(), n_out * k / config_.entry_dim,
                         config_.entry_dim, config_.num_entries);
    return "";
  }

  // Why the weight must stay for what else is done with it.
  std::string shared_reason(const Graph& graph, const Layer& layer) const {
    for (auto& other : layers_)
      if (same(other.weight, layer.weight) && other.out_axis != layer.out_axis)
        return fmt::format("{} is used in both layouts", layer.weight.name());
    Nodes values{layer.weight};
    for (std::size_t i = 0; i < values.size(); ++i) {
      for (auto& out : graph.outputs())
        if (same(out, values[i])) return fmt::format("{} is an output of the graph too", layer.weight.name());
      for (auto& user : users_[std::size_t(values[i].id())]) {
        if (user.is(ops::transpose) || user.is(ops::cast))
          values.push_back(user);
        else if (!is_layer(user) || same(user.input(0), values[i]))
          return fmt::format("{} is read by {} too", layer.weight.name(), report_label(user));
      }
    }
    return "";
  }
  bool is_layer(Node n) const {
    return std::ranges::any_of(layers_, [&](auto& layer) { return same(layer.matmul, n); });
  }

  void choose(const Layer& layer) {
    chosen.emplace(layer.matmul.id(), layer);
    const std::string& name = layer.weight.name();
    if (std::ranges::find(report.replaced, name, &CodebookReport::Replaced::weight) != report.replaced.end()) return;
    std::int64_t n = layer.weight.dim(layer.out_axis).number(), k = layer.weight.dim(1 - layer.out_axis).number();
    report.replaced.push_back({name, n, k, config_.entry_dim, config_.num_entries, layer.out_axis,
                               n * k * std::int64_t(size_of(layer.weight.dtype())),
                               n * k / config_.entry_dim + config_.num_entries * config_.entry_dim * 4});
  }

  const CodebookConfig& config_;
  std::vector<bool> needed_;
  std::vector<Nodes> users_;  // needed ones, by id
  std::vector<Layer> layers_;
  std::vector<std::pair<int, Skipped>> skipped_;
};

struct Pair {
  Node indices, codebook;
};

Node layer_node(Node matmul, Node x, const Pair& pair, const CodebookConfig& config) {
  x = as_dtype(x, promote(x.dtype(), matmul.dtype()));
  return as_dtype(synth_matmul(x, pair.indices, pair.codebook, {config.entry_dim, config.num_entries}), matmul.dtype());
}

// The graph without the replaced weights and what only moved them.
Graph replace(const Graph& source, const Chooser& chooser, const CodebookConfig& config) {
  Graph out;
  out.data().next_stream = source.data().next_stream;
  std::map<std::string, Pair> pairs;
  Nodes copies(std::size_t(source.size()));
  auto replaced = [&](Node n) -> const CodebookReport::Replaced* {
    auto it = std::ranges::find(chooser.report.replaced, n.name(), &CodebookReport::Replaced::weight);
    return n.is(param_op) && it != chooser.report.replaced.end() ? &*it : nullptr;
  };
  for (int id = 0; id < source.size(); ++id) {
    Node n = source.node(id), copy = none;
    out.set_origin(origin_by(n, kPass));
    if (auto* r = replaced(n)) {
      pairs[n.name()] = {out.param(n.name() + ".indices", DType::U8, {r->n, r->k / r->entry_dim}),
                         out.param(n.name() + ".codebook", DType::F32, {r->num_entries, r->entry_dim})};
    } else if (auto it = chooser.chosen.find(id); it != chooser.chosen.end()) {
      Node x = copies[std::size_t(n.input(0).id())];
      copy = layer_node(n, x, pairs.at(it->second.weight.name()), config);
      out.inherit(copy, n, kPass);
    } else {
      Nodes inputs;
      for (auto& in : n.inputs()) inputs.push_back(copies[std::size_t(in.id())]);
      out.set_origin("");
      if (std::ranges::all_of(inputs, [](Node in) { return bool(in); })) copy = copy_node(n, out, inputs);
    }
    copies[std::size_t(id)] = copy;
  }
  out.set_origin("");
  Nodes outputs;
  for (auto& o : source.outputs()) outputs.push_back(copies[std::size_t(o.id())]);
  out.set_outputs(outputs);
  return out;
}

}  // namespace

CodebookResult insert_codebooks(const Graph& graph, const CodebookConfig& config) {
  check(graph, config);
  if (Node gradient = find_gradient(graph))
    throw UserError(fmt::format("[{}] got a graph with gradients ({}), expected one without: quantise, then take them",
                                kPass, report_label(gradient)));
  Chooser chooser(graph, config);
  if (chooser.chosen.empty()) return {graph, std::move(chooser.report)};
  Graph out = replace(graph, chooser, config);
  return {out, std::move(chooser.report)};
}

}  // namespace rlx
