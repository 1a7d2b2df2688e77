// The precisions that a model can be trained in, one row each: what is done to its graphs, and what becomes of its
// linear weights.
#pragma once
#include <span>

#include "quant/block_format.h"
#include "rlx/train.h"

namespace rlx {

/// The form in which an inference graph holds linear weights.
enum class WeightForm : std::uint8_t {
  Dense,     // f32 params as they are
  Ternary,   // i8 codes `<linear>.weight` and their f32 scale `<linear>.scale`; activations become int8 values
  Scaled,    // u8 codes `<linear>.weight` of a number format, `<linear>.block_scale` and `<linear>.scale`
  Codebook,  // u8 `<linear>.weight.indices` and f32 `<linear>.weight.codebook`
};

struct Precision {
  std::string_view name, doc;
  WeightForm form = WeightForm::Dense;
  /// What training does to a graph of dense f32 params, before gradients are taken. Null: nothing.
  Graph (*rewrite)(const Graph&, const ModelConfig&) = nullptr;
  bool scales_loss = false;                  // its gradients are f16
  std::vector<std::string_view> file_types;  // what a file may hold its linear weights as; the first is the default

  Graph rewritten(const Graph& graph, const ModelConfig& c) const { return rewrite ? rewrite(graph, c) : graph; }
};
std::span<const Precision> precisions();
/// Throws UserError that lists them.
const Precision& precision(std::string_view name);
std::vector<std::string> precision_names();

inline WeightForm weight_form(const ModelConfig& c) { return precision(c.precision).form; }
// Beside tensor_scale_name (quant/block_format.h): `blk.0.attn_q.block_scale` of `blk.0.attn_q.weight`, and
// `blk.0.attn_q.weight.indices`, `….codebook`.
std::string block_scale_name(const std::string& weight_name);
std::string indices_name(const std::string& weight_name);
std::string codebook_name(const std::string& weight_name);

/// An inference graph whose linear weights are leaves in the form they are kept in.
struct FrozenGraph {
  Graph graph;
  Graph weights;                   // what makes these leaves from the f32 params, its outputs
  std::vector<std::string> names;  // of the outputs
};
/// Of a graph that `rewrite` made: what depends on one linear weight alone becomes a leaf, so that a stored code is
/// used as it is and never quantised again.
FrozenGraph freeze_weights(const Graph& rewritten, const std::vector<std::string>& linear);

}  // namespace rlx
