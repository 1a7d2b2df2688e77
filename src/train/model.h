// The bitnet transformer: its params, and the graphs that train it and ask it.
#pragma once
#include "rlx/train.h"
#include "rlx/transform.h"
#include "train/precision.h"

namespace rlx {

struct ParamInfo {
  std::string name;        // as GGUF names the tensor
  Extents shape;           // linear weights are [out, in]
  bool is_linear = false;  // a block's 2-D weight: what the precision is about, and Muon's
  DType dtype = DType::F32;
};
/// Of the dense model, in the order that they are made in.
std::vector<ParamInfo> model_params(const ModelConfig&);
/// What the training graph of the config's precision holds: the same, but indices and a codebook for each linear weight
/// in codebook precision. All that are f32 are trained (codebooks by AdamW: Muon, measured, gets less far with them).
std::vector<ParamInfo> trained_params(const ModelConfig&);
std::int64_t count_params(const ModelConfig&);
/// Normal values of deviation 0.02, smaller for what adds to the residual stream; norms are ones. Each param has its
/// own random stream.
Tensors init_params(const ModelConfig&, std::uint64_t seed);
/// Throws UserError on a trained param that is missing, unknown, or of another type; `where` is for the message.
void check_params(const ModelConfig&, const Tensors&, const std::string& where);

/// The config as it is while such weights are trained: a codebook run trains dense f32 weights first.
ModelConfig phase_of(const ModelConfig&, const Tensors& weights);
CodebookConfig codebook_config(const ModelConfig&);
/// The weights with which a codebook run goes on from dense ones: k-means over each linear weight.
Tensors to_codebook_params(const ModelConfig&, const Tensors& dense, std::uint64_t seed);

/// Params for the inference graphs from trained weights, in the precision's form.
Tensors inference_params(const ModelConfig&, const Tensors& trained);

/// Mean cross entropy (nats a token) of tokens[:, 1:] given tokens[:, :-1], for i32 tokens [batch, length + 1], as
/// trained: from trained_params, rewritten as the precision says. With `accumulation`, `tokens` holds the rows of
/// several batches, each of which gives a loss. Outputs: the losses.
Graph training_graph(const ModelConfig&, std::int64_t batch, std::int64_t length, std::int64_t accumulation = 1);
// Inference graphs, of the params that inference_params gives.
/// tokens i32 [seq] → logits f32 [seq, vocab].
Graph logits_graph(const ModelConfig&);
/// tokens i32 [batch, seq + 1] → nats f32 [batch, seq], the cross entropy of each token but a row's first.
Graph score_graph(const ModelConfig&);

/// One token at a time. Inputs token i32 [1] and position i32 [1]; the keys and values of the tokens before are in
/// params cache_k.N, cache_v.N [1, kv heads, capacity, head length], which the updates carry on. Output 0: logits f32
/// [vocab].
struct DecodeGraph {
  Graph graph;
  std::vector<Update> updates;
};
DecodeGraph decode_graph(const ModelConfig&, std::int64_t capacity);

}  // namespace rlx
