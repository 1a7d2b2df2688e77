// The passes that the pipelines are made of. Each is a function from a graph to a graph, which is the same handle where
// there was nothing to do. What users call is in rlx/transform.h.
#pragma once
#include "rewrite/rewrite.h"
#include "rlx/transform.h"

namespace rlx {

/// What `simplify` knows: algebra that is exact for every value, NaN, infinities and -0 included, and, marked inexact,
/// algebra that is not.
RuleSet algebra_rules();
/// No-op and chained reshapes, transposes, expands, casts, slices, pads, flips and concats.
RuleSet movement_rules();
RuleSet straight_through_rules();

/// Exact algebra, until nothing fits.
Rewritten simplify(const Graph& graph);
struct FoldOptions {
  std::int64_t max_bytes = std::int64_t(1) << 22;  // of a folded value
  double max_work = 1e8;                           // multiply-adds of a contraction
};
/// Evaluates what depends on constants alone by the interpreter. A value that all elements share stays one number that
/// is expanded. What fails or is too large stays a node.
Rewritten fold_constants(const Graph& graph, FoldOptions options = {});
/// Drops nodes that no output needs. Inputs and params are the graph's face and stay, unless `drop_leaves`.
Rewritten eliminate_dead_code(const Graph& graph, bool drop_leaves = false);
/// Expands the composites that the target does not claim, again in what their bodies are made of.
Rewritten legalize(const Graph& graph, const std::function<bool(Node)>& claims);
/// v + stop_gradient(q - v) is q, once gradients are taken: the one inexact rule that is on by default.
Rewritten collapse_straight_through(const Graph& graph);
/// stop_gradient is the identity once gradients are taken.
Rewritten drop_stop_gradients(const Graph& graph);
/// A matmul of fake-quantised operands computes on their integer codes: see use_integer_matmul.cpp.
Rewritten use_integer_matmul(const Graph& graph);
/// An f32 matmul of decoded number formats takes them as bf16, which holds them exactly: see use_bf16_matmul.cpp.
Rewritten use_bf16_matmul(const Graph& graph);
/// Why use_integer_matmul leaves a node alone, or that it does not.
std::string explain_integer_matmul(Node node);

}  // namespace rlx
