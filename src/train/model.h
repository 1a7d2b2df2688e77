// The bitnet transformer: its params, and the graphs that train it and ask it.
#pragma once
#include "rlx/train.h"

namespace rlx {

struct ParamInfo {
  std::string name;        // as GGUF names the tensor
  Extents shape;           // linear weights are [out, in]
  bool is_linear = false;  // a block's 2-D weight: ternary in bitnet precision, and Muon's
};
/// In the order that they are made in.
std::vector<ParamInfo> model_params(const ModelConfig&);
std::int64_t count_params(const ModelConfig&);
/// Normal values of deviation 0.02, smaller for what adds to the residual stream; norms are ones. Each param has its
/// own random stream.
Tensors init_params(const ModelConfig&, std::uint64_t seed);
/// Throws UserError on a tensor that is missing, unknown, or of another shape or dtype than f32; `where` is for the
/// message.
void check_params(const ModelConfig&, const Tensors&, const std::string& where);

/// The form in which a graph holds linear weights.
enum class WeightForm : std::uint8_t {
  Dense,    // f32 params as they are; activations are not quantised
  Ternary,  // i8 codes `<linear>.weight` and their f32 scale `<linear>.scale`; activations are quantised to int8 values
};

/// Params for an inference graph from master weights: in bitnet precision linear weights are ternarized.
Tensors inference_params(const ModelConfig&, const Tensors& master);
inline WeightForm weight_form(const ModelConfig& c) {
  return c.precision == "bitnet" ? WeightForm::Ternary : WeightForm::Dense;
}
/// `blk.0.attn_q.scale` of `blk.0.attn_q.weight`.
std::string scale_name(const std::string& weight_name);

/// Mean cross entropy (nats a token) of tokens[:, 1:] given tokens[:, :-1], for i32 tokens [batch, length + 1], as
/// trained: all params f32, fake-quantised where the precision is bitnet. With `accumulation`, `tokens` holds the rows
/// of several batches, each of which gives a loss. Outputs: the losses.
Graph training_graph(const ModelConfig&, std::int64_t batch, std::int64_t length, std::int64_t accumulation = 1);
/// tokens i32 [seq] → logits f32 [seq, vocab].
Graph logits_graph(const ModelConfig&, WeightForm);
/// tokens i32 [batch, seq + 1] → nats f32 [batch, seq], the cross entropy of each token but a row's first.
Graph score_graph(const ModelConfig&, WeightForm);

/// One token at a time. Inputs token i32 [1] and position i32 [1]; the keys and values of the tokens before are in
/// params cache_k.N, cache_v.N [1, kv heads, capacity, head length], which the updates carry on. Output 0: logits f32
/// [vocab].
struct DecodeGraph {
  Graph graph;
  std::vector<Update> updates;
};
DecodeGraph decode_graph(const ModelConfig&, WeightForm, std::int64_t capacity);

}  // namespace rlx
