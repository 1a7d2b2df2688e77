// Matmuls in FP8, MX or NVFP4: quantised operands with scales, Micikevicius et al., "FP8 Formats for Deep Learning",
// 2022, and the OCP Microscaling Formats specification 1.0.
#include <fmt/format.h>

#include "ops/rules.h"
#include "passes/weights.h"
#include "rewrite/rewrite.h"
#include "rlx/op_attrs.h"

namespace rlx {
namespace {

constexpr std::string_view kPass = "insert_scaled_matmul";

struct Operand {
  Node codes, scale, tensor_scale;
};

// v + stop_gradient(q - v): what quantisation-aware training made of an operand.
bool is_fake_quantized(Node n) {
  for (Node& step : path_to_leaf(n))
    if (step.is(ops::add) && (step.input(0).is(ops::stop_gradient) || step.input(1).is(ops::stop_gradient)))
      return true;
  return false;
}

class Inserter {
 public:
  Inserter(const Graph& graph, const ScaledMatmulConfig& config) : config_(config) {
    check_formats();
    if (Node gradient = find_gradient(graph))
      throw UserError(
          fmt::format("[{}] got a graph with gradients ({}), expected one without: quantise, then take them", kPass,
                      report_label(gradient)));
    for (auto& name : config.keep_full_precision) {
      bool known = false;
      for (int id = 0; id < graph.size() && !known; ++id) {
        Node n = graph.node(id);
        known = n.name() == name || (n.is(constant_op) && leaf_name(n) == name);
      }
      if (!known)
        throw UserError(fmt::format("[{}] keep_full_precision: the graph has no leaf or matmul \"{}\"", kPass, name));
    }
  }

  Replaced visit(Node copy, Node source) {
    if (!takes_weight(source)) return {};
    if (std::string reason = why_not(source); !reason.empty()) {
      report.skipped.push_back({report_label(source), reason});
      return {};
    }
    Graph graph = copy.graph();
    graph.set_origin(origin_by(copy, kPass));
    Node out = scaled(copy);
    graph.set_origin("");
    report.rewritten.push_back(report_label(source));
    if (Node leaf = path_to_leaf(source.input(1)).back(); is_leaf(leaf) && !contains(report.weights, leaf_name(leaf)))
      report.weights.push_back(leaf_name(leaf));
    return {out, std::string(kPass)};
  }

  ScaledMatmulReport report;

 private:
  // The ops say what does not fit; here it is said before any matmul is met.
  void check_formats() const {
    Graph scratch;
    Node x = scratch.input("x", DType::F32, {1, 1});
    try {
      scaled(matmul(x, x, DType::Any));
      if (config_.quantize_gradient) quantized(x, config_.gradient_format);
    } catch (const UserError& e) {
      throw UserError(fmt::format("[{}] {}", kPass, e.what()));
    }
  }

  std::string why_not(Node n) const {
    if (!n.is(ops::matmul)) return fmt::format("{} is no matmul", n.op().name);
    Node a = n.input(0), b = n.input(1);
    if (contains(config_.keep_full_precision, n.name())) return "it is kept in full precision";
    for (Node& operand : Nodes{a, b}) {
      if (!is_float(operand.dtype()) || operand.dtype() == DType::F64)
        return fmt::format("its operand {} is {}", report_label(operand), to_string(operand.dtype()));
      if (is_fake_quantized(operand))
        return fmt::format("its operand {} is fake-quantised already", report_label(operand));
      Node leaf = path_to_leaf(operand).back();
      if (is_leaf(leaf) && contains(config_.keep_full_precision, leaf_name(leaf)))
        return fmt::format("{} is kept in full precision", leaf_name(leaf));
    }
    if (b.rank() < 2) return "its right operand is a vector";
    if (b.rank() == 2) return "";
    if (!config_.batched) return fmt::format("its right operand {} has {} axes", report_label(b), b.rank());
    if (a.rank() != b.rank()) return fmt::format("its operands have {} and {} axes", a.rank(), b.rank());
    for (int d = 0; d + 2 < a.rank(); ++d)
      if (!(a.dim(d) == b.dim(d))) return fmt::format("its operands broadcast along axis {}", d);
    return "";
  }

  Operand quantized(Node x, Format format) const {
    Node tensor_scale = config_.layout == ScaleLayout::Nvfp4 ? scaled_quant_tensor_scale(x) : none;
    Node scale = scaled_quant_scale(x, format, config_.layout, config_.rule, tensor_scale);
    return {scaled_quantize(x, scale, format, config_.layout, tensor_scale), scale, tensor_scale};
  }

  // [..., k, n] as [..., n, k], which it may come from.
  static Node k_last(Node b) {
    if (b.is(ops::transpose)) {
      Axes swapped = all_axes(b.rank());
      std::swap(swapped[swapped.size() - 1], swapped[swapped.size() - 2]);
      if (normalize_perm(b.attrs<PermAttrs>().perm, b.rank()) == swapped) return b.input(0);
    }
    return swap_last(b);
  }

  Node scaled(Node product) const {
    Node a = product.input(0), b = product.input(1);
    if (b.rank() == 2 && a.rank() != 2) {
      Dim rows = 1;
      for (int d = 0; d + 1 < a.rank(); ++d) rows = rows * a.dim(d);
      a = reshape(a, {rows, a.dim(-1)});
    }
    Operand l = quantized(a, config_.lhs_format), r = quantized(k_last(b), config_.rhs_format);
    ScaledMatmulAttrs attrs{.lhs_format = config_.lhs_format,
                            .rhs_format = config_.rhs_format,
                            .scale_layout = config_.layout,
                            .quantize_gradient = config_.quantize_gradient,
                            .gradient_format = config_.gradient_format};
    Node out = scaled_matmul(l.codes, r.codes, l.scale, r.scale, attrs, l.tensor_scale, r.tensor_scale, none);
    if (out.shape() != product.shape()) out = reshape(out, product.shape());
    return as_dtype(out, product.dtype());
  }

  const ScaledMatmulConfig& config_;
};

}  // namespace

ScaledMatmulConfig ScaledMatmulConfig::of(Format format, ScaleLayout layout) {
  ScaledMatmulConfig out;
  out.lhs_format = out.rhs_format = format, out.layout = layout;
  if (layout == ScaleLayout::Nvfp4) out.gradient_format = format;
  return out;
}

ScaledMatmulResult insert_scaled_matmul(const Graph& graph, const ScaledMatmulConfig& config) {
  Inserter inserter(graph, config);
  Rebuilt out = rebuild(
      graph, [&](Node copy, Node source) { return inserter.visit(copy, source); }, Keep::All);
  bool changed = !inserter.report.rewritten.empty();
  for (int id = 0; changed && id < out.graph.size(); ++id)
    inserter.report.quantized += out.graph.node(id).is(ops::scaled_quantize);
  return {changed ? out.graph : graph, std::move(inserter.report)};
}

}  // namespace rlx
