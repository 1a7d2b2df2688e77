// BitNet b1.58 quantisation-aware training: weights become ternary, activations int8, in ordinary ops that train on
// every backend. Ma et al., "The Era of 1-bit LLMs", 2024.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/graph_data.h"
#include "ops/rules.h"
#include "passes/weights.h"
#include "quant/ternary.h"
#include "rewrite/rewrite.h"
#include "rlx/op_attrs.h"

namespace rlx {
namespace {

constexpr std::string_view kPass = "inject_bitnet_qat";

bool is_narrow(DType d) { return d == DType::F16 || d == DType::BF16; }

// The axes of the weight operand that share a scale.
Axes axes_under_one_scale(Node consumer) {
  int rank = consumer.input(1).rank();
  if (consumer.is(ops::matmul)) return {rank == 1 ? 0 : rank - 2};
  if (consumer.is(ops::dot_general)) return normalize_axes(consumer.attrs<DotGeneralAttrs>().rhs_contract, rank);
  int kept = consumer.is(ops::conv_transpose) ? 1 : 0;  // the output channel: [O, I, …] and [I, O, …]
  Axes out = all_axes(rank);
  std::erase(out, kept);
  return out;
}

// Those axes at a position on the path, between which and the operand are only transposes and casts.
Axes axes_at(const Nodes& path, std::size_t position, Node consumer) {
  Axes axes = axes_under_one_scale(consumer);
  for (std::size_t i = 0; i < position; ++i) {
    if (!path[i].is(ops::transpose)) continue;
    Axes perm = normalize_perm(path[i].attrs<PermAttrs>().perm, path[i].rank());
    for (int& axis : axes) axis = perm[std::size_t(axis)];
  }
  return axes;
}

// Positions on the path: what the scale is taken of, and what is rounded.
struct Place {
  std::size_t scale = 0, value = 0;
};

Place place_of(const Nodes& path, ScaleScope scope) {
  std::size_t scale = path.size() - 1;  // the leaf, in its own order
  if (scope == ScaleScope::PerChannel)  // or as near to it as axes can be followed
    for (scale = 0; path[scale].is(ops::transpose) || path[scale].is(ops::cast);) ++scale;
  // A 16-bit leaf that is widened on its way is rounded where it is wide, so that the scale keeps its f32.
  std::size_t value = scale;
  for (std::size_t i = scale; is_narrow(path[value].dtype()) && i-- > 0;)
    if (!is_narrow(path[i].dtype())) value = i;
  return {scope == ScaleScope::PerChannel ? value : scale, value};
}

Node straight_through(Node v, Node q) { return v + stop_gradient(as_dtype(q, v.dtype()) - v); }

Node ternary_operand(const Nodes& path, Node consumer, const BitNetConfig& config) {
  Place place = place_of(path, config.weight_scale);
  bool per_channel = config.weight_scale == ScaleScope::PerChannel;
  Axes axes = per_channel ? axes_at(path, place.scale, consumer) : all_axes(path.back().rank());
  Node mean_abs = cast(mean(abs(as_dtype(path[place.scale], DType::F64)), axes, per_channel), DType::F32);
  Node scale = maximum(mean_abs, config.weight_epsilon);
  Node w = path[place.value];
  Node codes = clamp(round(w / scale), -1, 1);
  Node out = straight_through(w, codes * scale);
  Graph graph = w.graph();
  for (std::size_t i = place.value; i-- > 0;) {  // back up to the operand
    out = graph.make(path[i].op(), {out}, path[i].attrs());
    graph.inherit(out, path[i], kPass);
  }
  return out;
}

Node int8_operand(Node x, const BitNetConfig& config) {
  Node wide = is_narrow(x.dtype()) ? cast(x, DType::F32) : x;
  Node s = 127 / maximum(max(abs(wide), {-1}, true), config.activation_epsilon);
  Node codes = clamp(round(wide * s), -128, 127);
  return straight_through(x, codes / s);
}

class Injector {
 public:
  Injector(const Graph& graph, const BitNetConfig& config) : config_(config) {
    for (double epsilon : {config.weight_epsilon, config.activation_epsilon})
      if (!(epsilon > 0) || !std::isfinite(epsilon))
        throw UserError(fmt::format("[{}] got epsilon {}, expected a finite number above 0", kPass, epsilon));
    if (Node gradient = find_gradient(graph))
      throw UserError(fmt::format("[{}] got a graph with gradients ({}), expected one without: quantise, then take them",
                                  kPass, report_label(gradient)));
    std::vector<std::string> leaves;
    for (int id = 0; id < graph.size(); ++id)
      if (is_leaf(graph.node(id))) leaves.push_back(leaf_name(graph.node(id)));
    for (auto& name : config.keep_full_precision)
      if (!contains(leaves, name))
        throw UserError(fmt::format("[{}] keep_full_precision: the graph has no leaf \"{}\"", kPass, name));
  }

  Replaced visit(Node copy, Node source) {
    if (!takes_weight(source)) return {};
    Nodes path = path_to_leaf(source.input(1));
    if (std::string reason = why_not(path); !reason.empty()) {
      report.skipped.push_back({report_label(source), reason});
      return {};
    }
    Graph graph = copy.graph();
    graph.set_origin(origin_by(copy, kPass));
    Nodes inputs = copy.inputs();
    if (config_.quantize_weights) {
      inputs[1] = ternary_operand(path_to_leaf(inputs[1]), copy, config_);
      std::string name = leaf_name(path.back());
      if (!contains(report.ternary_weights, name))
        report.ternary_weights.push_back(name);
    }
    if (config_.quantize_activations && source.is(ops::matmul) && is_float(inputs[0].dtype())) {
      inputs[0] = int8_operand(inputs[0], config_);
      ++report.quantized_activations;
    }
    Node out = graph.make(copy.op(), inputs, copy.attrs());
    graph.set_origin("");
    return {out, std::string(kPass)};
  }

  BitNetReport report;

 private:
  std::string why_not(const Nodes& path) const {
    Node leaf = path.back();
    if (!is_leaf(leaf)) return fmt::format("its weight operand is computed by {}, it is no leaf", report_label(leaf));
    std::string name = leaf_name(leaf);
    if (contains(config_.keep_full_precision, name))
      return fmt::format("{} is kept in full precision", name);
    if (leaf.is(input_op) && !config_.weights_from_inputs)
      return fmt::format("{} is an input, and inputs are no weights here", name);
    for (auto& n : path)
      if (!is_float(n.dtype())) return fmt::format("{} is {}, not a float", name, to_string(n.dtype()));
    return "";
  }

  const BitNetConfig& config_;
};

}  // namespace

BitNetResult inject_bitnet_qat(const Graph& graph, const BitNetConfig& config) {
  Injector injector(graph, config);
  Rebuilt out = rebuild(
      graph, [&](Node copy, Node source) { return injector.visit(copy, source); }, Keep::All);
  bool changed = !injector.report.ternary_weights.empty() || injector.report.quantized_activations > 0;
  return {changed ? out.graph : graph, std::move(injector.report)};
}

Ternary ternarize(const Array& weight, const BitNetConfig& config, const Axes& reduced) {
  auto epsilon = float(config.weight_epsilon);
  return config.weight_scale == ScaleScope::PerTensor ? ternarize_per_tensor(weight, epsilon)
                                                      : ternarize_per_channel(weight, reduced, epsilon);
}

}  // namespace rlx
