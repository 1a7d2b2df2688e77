// Automatic mixed precision: what each op computes in, by the class in its row and a policy, with casts around it.
// Micikevicius et al., "Mixed Precision Training", 2018.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "passes/weights.h"
#include "rewrite/rewrite.h"
#include "rlx/op_attrs.h"
#include "rlx/ops.h"
#include "rlx/transform.h"

namespace rlx {
namespace {

constexpr std::string_view kPass = "auto_mixed_precision";
constexpr std::string_view kQuantiser = "by inject_bitnet_qat";

/// The floats that the pass may change.
bool is_open(DType d) { return d == DType::F32 || d == DType::F16 || d == DType::BF16; }
/// Ops through which a cast may be moved towards the leaves: all elements stay, each on its own.
bool keeps_elements(Node n) {
  return n.is(ops::reshape) || n.is(ops::transpose) || n.is(ops::expand) || n.is(ops::flip);
}
Node before_movement(Node n) {
  while (keeps_elements(n)) n = n.input(0);
  return n;
}
bool is_made_by_quantiser(Node n) {
  return std::ranges::any_of(n.origins(), [](auto& origin) { return origin.find(kQuantiser) != origin.npos; });
}
bool reads_quantised(Node n) {
  return std::ranges::any_of(n.inputs(), [](Node in) {
    for (in = before_movement(in); in.is(ops::cast); in = before_movement(in.input(0))) {}
    return is_made_by_quantiser(in) || in.is(ops::from_format) || in.is(ops::scaled_dequantize);
  });
}

/// Whether a number is much the same in a dtype: neither infinite nor flushed.
bool survives(double v, DType d) {
  double stored = Array::scalar(v, d).at(0);
  return v == 0 || !std::isfinite(v) || (std::isfinite(stored) && std::abs(stored - v) <= std::abs(v) / 128);
}

/// What one class computes in; Any: as the operands come.
DType class_dtype(const MixedPrecisionConfig& c, AmpClass amp) {
  bool product = amp == AmpClass::Compute, reduction = amp == AmpClass::Reduction;
  switch (c.policy) {
    case PrecisionPolicy::AlwaysF32: return DType::F32;
    case PrecisionPolicy::AlwaysF16: return DType::F16;
    case PrecisionPolicy::AutoMixed:
    case PrecisionPolicy::AutoMixedConservative: return product ? c.dtype : reduction ? DType::F32 : DType::Any;
    case PrecisionPolicy::Bf16:
      return reduction ? DType::F32 : amp == AmpClass::Movement ? DType::Any : DType::BF16;
    case PrecisionPolicy::Custom: break;
  }
  auto& k = c.custom;
  return product ? k.compute : reduction ? k.reduction : amp == AmpClass::Movement ? k.movement : k.elementwise;
}

void check(const Graph& graph, const MixedPrecisionConfig& c) {
  auto open = [](std::string_view what, DType d) {
    if (!is_open(d))
      throw UserError(fmt::format("[{}] {} is {}, expected f32, f16 or bf16", kPass, what, to_string(d)));
  };
  bool mixed = c.policy == PrecisionPolicy::AutoMixed || c.policy == PrecisionPolicy::AutoMixedConservative;
  if (mixed && c.dtype != DType::BF16 && c.dtype != DType::F16)
    throw UserError(fmt::format("[{}] the dtype of products is {}, expected bf16 or f16", kPass, to_string(c.dtype)));
  if (c.policy == PrecisionPolicy::Custom)
    for (auto [what, d] : {std::pair{"custom.compute", c.custom.compute}, {"custom.reduction", c.custom.reduction},
                           {"custom.elementwise", c.custom.elementwise}, {"custom.movement", c.custom.movement}})
      if (d != DType::Any) open(what, d);
  auto exists = [&](const char* what, const std::string& name) {
    if (!graph.find(name)) throw UserError(fmt::format("[{}] {}: the graph has no node \"{}\"", kPass, what, name));
  };
  for (auto& name : c.keep) exists("keep", name);
  for (auto& [name, d] : c.overrides) exists("overrides", name), open(fmt::format("overrides[\"{}\"]", name), d);
}

class Lowering {
 public:
  Lowering(const Graph& source, const MixedPrecisionConfig& config)
      : source_(source), config_(config), kept_(config.keep.begin(), config.keep.end()) {
    check(source, config);
    out_.data().next_stream = source.data().next_stream;
  }

  MixedPrecisionResult run() {
    for (int id = 0; id < source_.size(); ++id) copies_.push_back(visit(source_.node(id)));
    Nodes outputs;
    for (Node n : source_.outputs()) outputs.push_back(as(copies_[std::size_t(n.id())], n.dtype()));
    out_.set_outputs(outputs);
    bool changed = !added_.empty() || !report_.lowered.empty();
    Graph result = changed ? without_leftovers() : source_;
    return {result, std::move(report_)};
  }

 private:
  // ------------------------------------------------------------------------------------------ casts

  /// The value in a dtype, by one cast for all who want it, as near to the leaves as it can stand.
  Node as(Node n, DType d) {
    if (n.dtype() == d || !is_open(n.dtype()) || !is_open(d)) return n;
    if (auto it = casts_.find({n.id(), d}); it != casts_.end()) return it->second;
    Node out;
    if (widened_.contains(n.id()) && n.input(0).dtype() == d) {
      out = n.input(0);  // it was widened here, which loses nothing
    } else if (keeps_elements(n)) {
      out = out_.make(n.op(), {as(n.input(0), d)}, n.attrs());
      out_.inherit(out, n);
    } else if (n.is(constant_op) && n.name().empty() && n.attrs<ConstantAttrs>().value.size() == 1) {
      out = out_.constant(n.attrs<ConstantAttrs>().value.cast(d));
    } else {
      out_.set_origin(origin_by(n, kPass));
      out = cast(n, d);
      out_.set_origin("");
      if (d == DType::F32) widened_.insert(out.id());
      added_.insert(out.id());
    }
    return casts_[{n.id(), d}] = out;
  }

  // ------------------------------------------------------------------------------------------ nodes

  Node visit(Node n) {
    auto has_float = [](Node m) { return is_float(m.dtype()); };
    if (is_leaf(n) || !(has_float(n) || std::ranges::any_of(n.inputs(), has_float))) return copy(n, {});
    if (std::string reason = why_kept(n); !reason.empty()) {
      if (!n.is(ops::cast)) report_.kept.push_back({report_label(n), reason});
      return copy(n, {});
    }
    DType target = dtype_of(n);
    if (target == DType::Any) target = as_operands_come(n);
    Node out = copy(n, target);
    bool back = config_.policy == PrecisionPolicy::AutoMixedConservative && amp_class(n.op()) == AmpClass::Compute;
    bool lowered = out.dtype() != n.dtype();
    for (Node in : n.inputs()) lowered |= is_open(in.dtype()) && target != DType::Any && in.dtype() != target;
    if (lowered) report_.lowered.push_back({report_label(n), amp_class(n.op()), target});
    else report_.kept.push_back({report_label(n), why_unchanged(n, target)});
    return back ? as(out, n.dtype()) : out;
  }

  /// The node with its operands in a dtype, or each in its own.
  Node copy(Node n, DType target) {
    Nodes inputs;
    for (Node in : n.inputs()) {
      Node now = copies_[std::size_t(in.id())];
      inputs.push_back(is_open(in.dtype()) ? as(now, target == DType::Any ? in.dtype() : target) : now);
    }
    return copy_node(n, out_, std::move(inputs));
  }

  std::string why_kept(Node n) const {
    auto is_f64 = [](Node m) { return is_float(m.dtype()) && !is_open(m.dtype()); };
    if (is_f64(n) || std::ranges::any_of(n.inputs(), is_f64)) return "f64 stays f64";
    for (auto& name : n.names())
      if (kept_.contains(name)) return "kept by its name";
    if (amp_class(n.op()) == AmpClass::Boundary) return fmt::format("{} keeps its dtypes", n.op().name);
    if (is_made_by_quantiser(n)) return "a part of inject_bitnet_qat's quantisation";
    if (amp_class(n.op()) != AmpClass::Compute) return "";
    if (reads_quantised(n)) return "an operand is quantised";
    for (Node in : n.inputs())
      if (Node leaf = before_movement(in); is_leaf(leaf) && kept_.contains(leaf.name()))
        return fmt::format("reads {}, which is kept", leaf.name());
    return "";
  }

  std::string why_unchanged(Node n, DType target) const {
    bool by_class = dtype_of(n) != DType::Any;
    return fmt::format("{} in {}{}", enum_names(AmpClass())[std::size_t(amp_class(n.op()))],
                       to_string(target == DType::Any ? n.dtype() : target), by_class ? "" : ", as its operands come");
  }

  DType dtype_of(Node n) const {
    for (auto& name : n.names())
      if (auto it = config_.overrides.find(name); it != config_.overrides.end()) return it->second;
    return class_dtype(config_, amp_class(n.op()));
  }

  /// The widest of the operands that count: a number, or a leaf that is stretched (a bias), takes the others' dtype.
  DType as_operands_come(Node n) const {
    DType strong = DType::Any, all = DType::Any;
    auto join = [](DType& to, DType d) { to = to == DType::Any ? d : promote(to, d); };
    for (Node in : n.inputs()) {
      if (!is_open(in.dtype())) continue;
      DType now = copies_[std::size_t(in.id())].dtype();
      join(all, now);
      if (!uniform_value(in) && !is_stretched_leaf(in, n)) join(strong, now);
    }
    if (strong == DType::Any) return all;
    for (Node in : n.inputs())
      if (auto v = uniform_value(in); v && is_open(in.dtype()) && !survives(*v, strong)) join(strong, in.dtype());
    return strong;
  }
  static bool is_stretched_leaf(Node in, Node n) {
    bool stretched = in.shape() != n.shape();
    for (; keeps_elements(in); in = in.input(0)) stretched |= in.is(ops::expand);
    return stretched && is_leaf(in) && !in.is(constant_op) && amp_class(n.op()) == AmpClass::Elementwise;
  }

  // ------------------------------------------------------------------------------------------ the end

  /// Without the movement that stands behind a cast now, and what else nobody reads and has no name.
  Graph without_leftovers() {
    std::vector<bool> wanted(std::size_t(out_.size())), read(std::size_t(source_.size()));
    for (int id = 0; id < source_.size(); ++id)
      for (Node in : source_.node(id).inputs()) read[std::size_t(in.id())] = true;
    for (int id = 0; id < source_.size(); ++id) {
      Node n = source_.node(id);
      if (!n.names().empty() || !read[std::size_t(id)]) wanted[std::size_t(copies_[std::size_t(id)].id())] = true;
    }
    for (Node n : out_.outputs()) wanted[std::size_t(n.id())] = true;
    for (int id = out_.size() - 1; id >= 0; --id)
      if (wanted[std::size_t(id)])
        for (Node in : out_.node(id).inputs()) wanted[std::size_t(in.id())] = true;
    Graph clean;
    clean.data().next_stream = out_.data().next_stream;
    std::vector<Node> copies(wanted.size());
    for (int id = 0; id < out_.size(); ++id) {
      if (!wanted[std::size_t(id)]) continue;
      Nodes inputs;
      for (Node in : out_.node(id).inputs()) inputs.push_back(copies[std::size_t(in.id())]);
      copies[std::size_t(id)] = copy_node(out_.node(id), clean, std::move(inputs));
      report_.casts += added_.contains(id);
    }
    Nodes outputs;
    for (Node n : out_.outputs()) outputs.push_back(copies[std::size_t(n.id())]);
    clean.set_outputs(outputs);
    return clean;
  }

  const Graph source_;
  const MixedPrecisionConfig& config_;
  const std::set<std::string> kept_;
  Graph out_;
  Nodes copies_;  // by the id in the source: what stands for each node now, in whatever dtype
  std::map<std::pair<int, DType>, Node> casts_;
  std::set<int> added_, widened_;  // casts that were added, and of them those to f32
  MixedPrecisionReport report_;
};

}  // namespace

std::span<const std::string_view> enum_names(PrecisionPolicy) {
  static constexpr std::string_view kNames[] = {"always_f32", "always_f16", "auto_mixed", "auto_mixed_conservative",
                                                "bf16",       "custom"};
  return kNames;
}

int MixedPrecisionReport::count(AmpClass amp) const {
  return int(std::ranges::count(lowered, amp, &Lowered::amp));
}

MixedPrecisionResult auto_mixed_precision(const Graph& graph, const MixedPrecisionConfig& config) {
  return Lowering(graph, config).run();
}

}  // namespace rlx
