// Graph → graph: gradients and the passes.
#pragma once
#include <map>

#include "rlx/graph.h"
#include "rlx/op_attrs.h"

namespace rlx {

enum class AmpClass : std::uint8_t;  // rlx/op_def.h

// ---------------------------------------------------------------------------------------------- differentiation

/// Adds the gradients of `y` to its graph: one node for each of `wrt`, with its type; zeros where y does not depend on
/// it. `dy` is the cotangent of y, by default ones. Throws UserError where a wrt or y is not a float.
Nodes grad(Node y, const Nodes& wrt, Node dy = none);
/// A graph whose outputs are [loss, d loss / d wrt[0], …], where the loss is the source's first output. It has one more
/// input, `d_output` (`d_output_2`, … where that name is taken), the cotangent that seeds the sweep, of the loss's type.
Graph grad_with_loss(const Graph& graph, const Nodes& wrt);
/// The same, by leaf names. Throws UserError that names one that does not exist.
Graph grad_with_loss(const Graph& graph, const std::vector<std::string>& wrt);
inline Graph grad_with_loss(const Graph& graph, std::initializer_list<const char*> wrt) {
  return grad_with_loss(graph, std::vector<std::string>(wrt.begin(), wrt.end()));
}
/// Adds the forward derivative: d y / d wrt · tangents, of y's type. By two reverse sweeps.
Node jvp(Node y, const Nodes& wrt, const Nodes& tangents);
/// Adds the Hessian of the scalar `y` times `v`: one node for each of `wrt`.
Nodes hvp(Node y, const Nodes& wrt, const Nodes& v);

// ---------------------------------------------------------------------------------------------- passes

/// Expands the backward composites (activation_backward, relu_backward and the three of batch-norm inference) into
/// primitives and leaves every other node, name and origin alone. Gives the same graph where there are none.
Graph lower_backward_ops(const Graph& graph);

/// A node that a pass left alone, and why.
struct Skipped {
  std::string node, reason;
};

// ---------------------------------------------------------------------------------------------- BitNet b1.58

enum class ScaleScope : std::uint8_t {
  PerTensor,   // one scale a weight
  PerChannel,  // one for each output: a matmul's column (of each batch), a dot_general's free position, a convolution's channel
};
struct BitNetConfig {
  ScaleScope weight_scale = ScaleScope::PerTensor;
  bool quantize_weights = true;      // false: they are ternary already
  bool quantize_activations = true;  // those that meet a weight in a matmul
  bool weights_from_inputs = true;   // an Input may be a weight too
  double weight_epsilon = 1e-5, activation_epsilon = 1e-5;  // the least mean |w| and max |x|
  std::vector<std::string> keep_full_precision;  // leaves by exact name; a constant without one is const#<id>
};
struct BitNetReport {
  std::vector<std::string> ternary_weights;  // leaves, each once, in the order of the nodes that use them
  int quantized_activations = 0;             // how many matmuls now read int8 activations
  std::vector<Skipped> skipped;
};
struct BitNetResult {
  Graph graph;  // the source itself where nothing was rewritten
  BitNetReport report;
};
/// Quantisation-aware training as in BitNet b1.58, in ordinary ops. The weight operand of each matmul, dot_general, conv
/// and conv_transpose that comes from a leaf by transpose, reshape, cast and expand becomes scale · clamp(round(w / scale),
/// -1, 1) with scale = max(mean |w|, epsilon), the mean in f64, rounded once to f32. The left operand of such a matmul
/// becomes clamp(round(x · s), -128, 127) / s with s = 127 / max(max |x|, epsilon) over its last axis. Gradients pass
/// straight through. f16 and bf16 operands are quantised in f32 and the result rounded to their dtype.
/// Throws UserError where an epsilon is not above 0, `keep_full_precision` names no leaf, or the graph has gradients.
BitNetResult inject_bitnet_qat(const Graph& graph, const BitNetConfig& config = {});

/// Ternary weights by hand, as the pass's graph computes them.
struct Ternary {
  Array codes;   // i8 of the weight's shape
  Array scales;  // f32 of the weight's shape with 1 for each axis that was reduced
};
/// To the bit the codes and scales that the forward pass of a graph under `config` uses. `reduced`: for PerChannel, the
/// axes under one scale, {-2} for a matmul's [..., K, N], all but the first for a convolution's [O, I, ...].
Ternary ternarize(const Array& weight, const BitNetConfig& config = {}, const Axes& reduced = {-2});

// ---------------------------------------------------------------------------------------------- scaled matmul

struct ScaledMatmulConfig {
  Format lhs_format = Format::F8E4M3, rhs_format = Format::F8E4M3;
  ScaleLayout layout = ScaleLayout::PerTensor;
  MxRule rule = MxRule::Ceil;
  bool quantize_gradient = false;  // the products of the gradient take their cotangent in a format of its own
  Format gradient_format = Format::F8E5M2;
  bool batched = false;            // matmuls whose right operand has more than two axes too
  std::vector<std::string> keep_full_precision;  // weights (leaves) and matmuls by exact name; a constant without one is const#<id>

  static ScaledMatmulConfig fp8_e4m3() { return {}; }
  static ScaledMatmulConfig mxfp8_e4m3() { return of(Format::F8E4M3, ScaleLayout::Mx); }
  static ScaledMatmulConfig mxfp6_e2m3() { return of(Format::F6E2M3, ScaleLayout::Mx); }
  static ScaledMatmulConfig mxfp4() { return of(Format::F4E2M1, ScaleLayout::Mx); }
  static ScaledMatmulConfig nvfp4() { return of(Format::F4E2M1, ScaleLayout::Nvfp4); }
  /// One format for both operands; the gradient's, where it is quantised, is it too in nvfp4, else f8e5m2.
  static ScaledMatmulConfig of(Format, ScaleLayout);
};
struct ScaledMatmulReport {
  std::vector<std::string> rewritten;  // matmuls, in graph order
  std::vector<std::string> weights;    // leaves that are right operands now in codes, each once
  int quantized = 0;                   // scaled_quantize nodes: a tensor is quantised once for each format and layout
  std::vector<Skipped> skipped;        // matmuls, dot_generals and convolutions
};
struct ScaledMatmulResult {
  Graph graph;  // the source itself where nothing was rewritten
  ScaledMatmulReport report;
};
/// Rewrites each float matmul [..., m, k] · [k, n] to scaled_matmul(quantize(lhs), quantize(rhsᵀ), scales), its leading axes
/// flattened. Gradients pass straight through to the operands. Codes of weights depend on leaves alone, so a compiled graph
/// computes them when they are set and not at each run. Run it before gradients are taken. Operands that are fake-quantised
/// already are left alone. Throws UserError where formats and layout do not fit or `keep_full_precision` names nothing.
ScaledMatmulResult insert_scaled_matmul(const Graph& graph, const ScaledMatmulConfig& config = {});

// ---------------------------------------------------------------------------------------------- codebooks

struct CodebookConfig {
  std::int64_t entry_dim = 2;      // numbers an entry, along k; divides the inputs of a layer
  std::int64_t num_entries = 256;  // at most 256: an index is one byte
  std::vector<std::string> weights = {"*"};  // params to replace, by names in which * is any text and ? any character
  std::vector<std::string> keep = {};        // params that stay, likewise: the embedding and the head
};
struct CodebookReport {
  struct Replaced {
    std::string weight;  // the param that is gone; `<weight>.indices` and `<weight>.codebook` stand for it
    std::int64_t n = 0, k = 0, entry_dim = 0, num_entries = 0;
    int out_axis = 0;    // the axis of its outputs: 0 of [n, k], 1 of [k, n]
    std::int64_t bytes_before = 0, bytes_after = 0;
  };
  std::vector<Replaced> replaced;  // in the order of the nodes that use them
  std::vector<Skipped> skipped;    // matmuls, dot_generals and convolutions
};
struct CodebookResult {
  Graph graph;  // the source itself where nothing was rewritten
  CodebookReport report;
};
/// Makes codebook layers of matmuls: each whose right operand is a 2-D Param, also through transposes and casts, becomes
/// synth_matmul with the params `<weight>.indices` (u8 [n, k / entry_dim]) and `<weight>.codebook` (f32 [num_entries,
/// entry_dim]). A weight of several matmuls becomes one pair; one that anything else reads too stays. Everything that
/// was asked for and not done is in the report with its reason. Throws UserError where a size is out of range or a name
/// fits no param.
CodebookResult insert_codebooks(const Graph& graph, const CodebookConfig& config = {});

struct KMeansConfig {
  std::int64_t entry_dim = 2, num_entries = 256;
  std::uint64_t seed = 1;
  int iterations = 20;  // at most; it ends when no vector changes its entry
};
struct CodebookWeight {
  Array indices;   // u8 [n, k / entry_dim]
  Array codebook;  // f32 [num_entries, entry_dim]
  double mean_squared_error = 0;  // of an element of the weight
};
/// The codebook nearest to a weight [n, k] of floats: k-means over its vectors of entry_dim numbers along k, from a
/// k-means++ start (Arthur, Vassilvitskii, 2007). An entry that no vector takes is moved to the vector farthest from its
/// own. The same for every number of threads. Throws UserError on a value that is not finite or a size out of range.
CodebookWeight codebook_from_weight(const Array& weight, const KMeansConfig& config = {});
/// The weight [n, k] that u8 indices and a codebook stand for. Throws UserError that names an index out of range.
Array reconstruct(const Array& indices, const Array& codebook);
/// The params that insert_codebooks added, by name, from the weights that it replaced. Throws UserError where one is
/// missing or has another shape.
std::map<std::string, Array, std::less<>> codebook_params(const std::map<std::string, Array, std::less<>>& weights,
                                                          const CodebookReport& report, std::uint64_t seed = 1);

// ---------------------------------------------------------------------------------------------- mixed precision

/// What the float ops of each class compute in (docs/mixed_precision.md has the table). f64 stays f64 under all.
enum class PrecisionPolicy : std::uint8_t {
  AlwaysF32,              // everything in f32, f16 and bf16 too
  AlwaysF16,              // everything in f16
  AutoMixed,              // products in 16 bits, reductions in f32, the rest as its operands come
  AutoMixedConservative,  // products in 16 bits, their results back in f32 at once, the rest in f32
  Bf16,                   // everything in bf16 but reductions
  Custom,                 // as `custom` says
};
std::span<const std::string_view> enum_names(PrecisionPolicy);

struct MixedPrecisionConfig {
  PrecisionPolicy policy = PrecisionPolicy::AutoMixed;
  DType dtype = DType::BF16;  // of the products in the two auto_mixed policies: bf16 or f16
  /// A dtype for each class, f32, f16 or bf16; Any: as the operands come.
  struct Classes {
    DType compute = DType::BF16, reduction = DType::F32, elementwise = DType::Any, movement = DType::Any;
  };
  Classes custom = Classes();
  /// Nodes, by name, that compute in this dtype whatever their class says: f32, f16 or bf16.
  std::map<std::string, DType> overrides = {};
  /// Nodes, by name, that keep the dtypes they have; by a leaf's name the products that it is an operand of.
  std::vector<std::string> keep = {};
};
struct MixedPrecisionReport {
  struct Lowered {
    std::string node;
    AmpClass amp;
    DType dtype;  // what it computes in
  };
  std::vector<Lowered> lowered;  // nodes that compute in another dtype than before, in graph order
  int casts = 0;                 // that were added
  std::vector<Skipped> kept;     // the other nodes with float operands or results, leaves and casts aside
  /// How many of a class were lowered.
  int count(AmpClass) const;
};
struct MixedPrecisionResult {
  Graph graph;  // the source itself where nothing changed
  MixedPrecisionReport report;
};
/// Chooses what each op computes in, by its class and the policy. Leaves keep their dtype and are cast in the graph, each
/// tensor once a dtype; outputs return to theirs; indices, bool, integers and codes are not touched. What quantises
/// (inject_bitnet_qat and ops of class boundary) and the products of quantised operands stay as they are. Names and
/// origins stay. Idempotent. For a graph without gradients, which then flow through the casts, or with them.
/// Throws UserError on a dtype that the policy cannot have, or a name that no node has.
MixedPrecisionResult auto_mixed_precision(const Graph& graph, const MixedPrecisionConfig& config = {});

}  // namespace rlx
