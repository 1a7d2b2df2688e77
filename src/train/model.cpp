// The bitnet transformer as graphs.
#include "train/model.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "base/philox.h"
#include "quant/ternary.h"
#include "rlx/ops.h"

namespace rlx {
namespace {

constexpr double kQuantEpsilon = 1e-5;
constexpr std::uint64_t kInitStream = 0x696e6974;  // "init": apart from the streams that draw batches

Node swapped(Node x) { return transpose(x, {1, 0}); }

std::vector<std::string> linear_names(const ModelConfig& c) {
  std::vector<std::string> out;
  for (auto& p : model_params(c))
    if (p.is_linear) out.push_back(p.name);
  return out;
}

// Builds the nodes of one graph. Activations have shape [batch, seq, …].
class Builder {
 public:
  Builder(const ModelConfig& config, bool is_ternary = false) : c_(config), is_ternary_(is_ternary) {}

  Graph graph;

  Node leaf(const std::string& name, DType dtype, Shape shape) {
    Node found = graph.find_leaf(name);
    return found ? found : graph.param(name, dtype, std::move(shape));
  }
  Node embedding() { return leaf("token_embd.weight", DType::F32, {c_.vocab_size, c_.embedding_length}); }
  Node embed(Node tokens) { return gather(embedding(), tokens, 0); }

  // The token's normalised activation as it reaches the head.
  Node blocks(Node h, Node positions) {
    for (std::int64_t n = 0; n < c_.block_count; ++n) {
      block_ = fmt::format("blk.{}.", n);
      h = h + attention_part(h, positions, n);
      h = h + feed_forward_part(h);
    }
    block_.clear();
    return norm(h, "output_norm", c_.embedding_length);
  }
  Node head(Node h) { return matmul(h, swapped(embedding())).named("logits"); }

  // One token a run, with a cache of this many: position is i32 [1].
  void use_cache(std::int64_t capacity, Node position) { capacity_ = capacity, position_ = position; }
  std::vector<StateNode> cache_updates;

 private:
  Node norm(Node x, const char* name, std::int64_t length) {
    return rms_norm(x, leaf(block_ + name + ".weight", DType::F32, {length}), c_.rms_norm_epsilon);
  }

  Node linear(Node x, const char* name, std::int64_t out, std::int64_t in) {
    std::string weight = block_ + name + ".weight";
    if (!is_ternary_) return matmul(x, swapped(leaf(weight, DType::F32, {out, in}))).named(block_ + name);
    Node codes = leaf(weight, DType::I8, {out, in}), scale = leaf(tensor_scale_name(weight), DType::F32, {1});
    return matmul(quantized(x), swapped(cast(codes, DType::F32) * scale)).named(block_ + name);
  }

  // What inject_bitnet_qat makes of an activation, once the straight-through sum is collapsed.
  static Node quantized(Node x) {
    Node s = 127 / maximum(max(abs(x), {-1}, true), kQuantEpsilon);
    return clamp(round(x * s), -128, 127) / s;
  }

  Node heads(Node x, std::int64_t count) {  // [batch, seq, count * head] → [batch, count, seq, head]
    return transpose(reshape(x, {x.dim(0), x.dim(1), count, c_.head_length()}), {0, 2, 1, 3});
  }

  Node attention_part(Node h, Node positions, std::int64_t n) {
    std::int64_t hd = c_.head_length(), q_size = c_.head_count * hd, kv_size = c_.head_count_kv * hd,
                 dim = c_.embedding_length;
    Node a = norm(h, "attn_norm", dim);
    Node q = rotated(heads(linear(a, "attn_q", q_size, dim), c_.head_count), positions);
    Node k = rotated(heads(linear(a, "attn_k", kv_size, dim), c_.head_count_kv), positions);
    Node v = heads(linear(a, "attn_v", kv_size, dim), c_.head_count_kv);
    Node attended;
    if (capacity_) {
      k = cached(fmt::format("cache_k.{}", n), k);
      v = cached(fmt::format("cache_v.{}", n), v);
      attended = attention(q, k, v, {}, none, position_ + 1);
    } else {
      attended = attention(q, k, v, {.mask = AttentionMask::Causal});
    }
    Node flat = reshape(transpose(attended, {0, 2, 1, 3}), {h.dim(0), h.dim(1), q_size});
    return linear(norm(flat, "attn_sub_norm", q_size), "attn_output", dim, q_size);
  }

  Node rotated(Node x, Node positions) { return rope(x, positions, c_.rope_freq_base); }

  Node cached(const std::string& name, Node value) {
    Node cache = graph.param(name, DType::F32, {1, c_.head_count_kv, capacity_, c_.head_length()});
    Node next = scatter(cache, position_, value, 2, ScatterMode::Set);
    cache_updates.push_back({cache, next});
    return next;
  }

  Node feed_forward_part(Node h) {
    std::int64_t dim = c_.embedding_length, ffn = c_.feed_forward_length;
    Node f = norm(h, "ffn_norm", dim);
    Node gate = linear(f, "ffn_gate", ffn, dim), up = linear(f, "ffn_up", ffn, dim);
    Node active = (c_.activation == "relu2" ? relu2(gate) : silu(gate)) * up;
    return linear(norm(active, "ffn_sub_norm", ffn), "ffn_down", dim, ffn);
  }

  const ModelConfig& c_;
  bool is_ternary_;  // linear weights are codes and scales
  std::string block_;
  std::int64_t capacity_ = 0;
  Node position_;
};

// A dense inference graph in the precision's form. (That of bitnet is built so: its products then run on the codes.)
Graph inference_form(const Graph& dense, const ModelConfig& c) {
  auto& p = precision(c.precision);
  if (p.form == WeightForm::Ternary) return dense;
  Graph out = p.rewritten(dense, c);
  return p.form == WeightForm::Scaled ? freeze_weights(out, linear_names(c)).graph : out;
}
Builder inference_builder(const ModelConfig& c) { return {c, weight_form(c) == WeightForm::Ternary}; }

Node positions_of(Graph& graph, Dim length) { return iota(graph, {length}, 0, DType::I32); }

// Rows [first, first + rows) and columns [column, column + length) of tokens.
Node window(Node tokens, Dim first, Dim rows, Dim column, Dim length) {
  return slice(tokens, {first, column}, {rows, length}, {1, 1});
}

}  // namespace

std::vector<ParamInfo> model_params(const ModelConfig& c) {
  std::int64_t dim = c.embedding_length, q = c.head_count * c.head_length(), kv = c.head_count_kv * c.head_length(),
               ffn = c.feed_forward_length;
  std::vector<ParamInfo> out{{"token_embd.weight", {c.vocab_size, dim}}};
  for (std::int64_t n = 0; n < c.block_count; ++n) {
    auto add = [&](const char* name, Extents shape) {
      bool is_linear = shape.size() == 2;
      out.push_back({fmt::format("blk.{}.{}.weight", n, name), std::move(shape), is_linear});
    };
    add("attn_norm", {dim});
    add("attn_q", {q, dim});
    add("attn_k", {kv, dim});
    add("attn_v", {kv, dim});
    add("attn_sub_norm", {q});
    add("attn_output", {dim, q});
    add("ffn_norm", {dim});
    add("ffn_gate", {ffn, dim});
    add("ffn_up", {ffn, dim});
    add("ffn_sub_norm", {ffn});
    add("ffn_down", {dim, ffn});
  }
  out.push_back({"output_norm.weight", {dim}});
  return out;
}

std::int64_t count_params(const ModelConfig& c) {
  std::int64_t total = 0;
  for (auto& p : model_params(c)) total += count(p.shape);
  return total;
}

Tensors init_params(const ModelConfig& c, std::uint64_t seed) {
  Tensors out;
  std::uint64_t stream = kInitStream << 32;
  for (auto& p : model_params(c)) {
    Array value(DType::F32, p.shape);
    auto v = value.values<float>();
    PhiloxStream random(seed, stream++);
    if (p.shape.size() == 1) {
      std::fill(v.begin(), v.end(), 1.f);
    } else {
      bool residual = p.name.ends_with("attn_output.weight") || p.name.ends_with("ffn_down.weight");
      double deviation = residual ? 0.02 / std::sqrt(2.0 * double(c.block_count)) : 0.02;
      for (std::size_t i = 0; i < v.size(); i += 2) {
        double r = deviation * std::sqrt(-2 * std::log1p(-double(random.next_uniform())));
        double angle = 2 * std::numbers::pi * double(random.next_uniform());
        v[i] = float(r * std::cos(angle));
        if (i + 1 < v.size()) v[i + 1] = float(r * std::sin(angle));
      }
    }
    out.emplace(p.name, value);
  }
  return out;
}

std::vector<ParamInfo> trained_params(const ModelConfig& c) {
  auto dense = model_params(c);
  if (weight_form(c) != WeightForm::Codebook) return dense;
  std::vector<ParamInfo> out;
  for (auto& p : dense) {
    if (!p.is_linear) {
      out.push_back(p);
      continue;
    }
    out.push_back({indices_name(p.name), {p.shape[0], p.shape[1] / c.codebook_entry_dim}, false, DType::U8});
    out.push_back({codebook_name(p.name), {c.codebook_entries, c.codebook_entry_dim}});
  }
  return out;
}

void check_params(const ModelConfig& c, const Tensors& tensors, const std::string& where) {
  auto params = trained_params(phase_of(c, tensors));
  for (auto& p : params) {
    auto found = tensors.find(p.name);
    if (found == tensors.end()) throw UserError(fmt::format("[model] {}: tensor \"{}\" is missing", where, p.name));
    Type expected{p.dtype, to_shape(p.shape)};
    if (found->second.type() != expected)
      throw UserError(fmt::format("[model] {}: tensor \"{}\" is {}, expected {}", where, p.name,
                                  to_string(found->second.type()), to_string(expected)));
  }
  for (auto& [name, value] : tensors) {
    bool known = false;
    for (auto& p : params) known |= p.name == name;
    if (!known) throw UserError(fmt::format("[model] {}: unknown tensor \"{}\"", where, name));
  }
}

ModelConfig phase_of(const ModelConfig& c, const Tensors& weights) {
  ModelConfig out = c;
  if (weight_form(c) == WeightForm::Codebook && weights.contains(linear_names(c)[0])) out.precision = "f32";
  return out;
}

CodebookConfig codebook_config(const ModelConfig& c) {
  CodebookConfig out{.entry_dim = c.codebook_entry_dim, .num_entries = c.codebook_entries};
  out.weights = linear_names(c);
  return out;
}

Tensors to_codebook_params(const ModelConfig& c, const Tensors& dense, std::uint64_t seed) {
  Tensors out;
  for (auto& p : model_params(c)) {
    const Array& value = dense.find(p.name)->second;
    if (!p.is_linear) {
      out.emplace(p.name, value);
      continue;
    }
    CodebookWeight w = codebook_from_weight(value, {c.codebook_entry_dim, c.codebook_entries, seed});
    out.emplace(indices_name(p.name), w.indices);
    out.emplace(codebook_name(p.name), w.codebook);
  }
  return out;
}

namespace {

Tensors ternary_params(const ModelConfig& c, const Tensors& master) {
  Tensors out;
  for (auto& p : model_params(c)) {
    const Array& value = master.find(p.name)->second;
    if (!p.is_linear) {
      out.emplace(p.name, value);
      continue;
    }
    Ternary t = ternarize_per_tensor(value, float(kQuantEpsilon));
    out.emplace(p.name, t.codes);
    out.emplace(tensor_scale_name(p.name), t.scales.reshaped({1}));
  }
  return out;
}

// Computed by the very nodes that the training graph has.
Tensors scaled_params(const ModelConfig& c, const Tensors& master) {
  Builder b(c);
  Dim seq = Dim::symbol("seq");
  b.graph.set_outputs({b.blocks(b.embed(b.graph.input("tokens", DType::I32, {1, seq})), positions_of(b.graph, seq))});
  FrozenGraph frozen = freeze_weights(precision(c.precision).rewritten(b.graph, c), linear_names(c));
  CompiledGraph quantize = Session(Device::cpu()).compile(frozen.weights, {.name = "quantize_weights"});
  Tensors out;
  for (auto& p : model_params(c)) {
    const Array& value = master.find(p.name)->second;
    p.is_linear ? quantize.set_param(p.name, value) : void(out.emplace(p.name, value));
  }
  auto values = quantize.run({});
  for (std::size_t i = 0; i < values.size(); ++i) out.emplace(frozen.names[i], values[i]);
  return out;
}

}  // namespace

Tensors inference_params(const ModelConfig& c, const Tensors& trained) {
  switch (weight_form(c)) {
    case WeightForm::Dense:
    case WeightForm::Codebook: return trained;
    case WeightForm::Ternary: return ternary_params(c, trained);
    case WeightForm::Scaled: return scaled_params(c, trained);
  }
  throw InternalError("unknown weight form");
}

Graph training_graph(const ModelConfig& c, std::int64_t batch, std::int64_t length, std::int64_t accumulation) {
  Builder b(c);
  Node tokens = b.graph.input("tokens", DType::I32, {accumulation * batch, length + 1});
  Node positions = positions_of(b.graph, length);
  Nodes losses;
  for (std::int64_t i = 0; i < accumulation; ++i) {
    Node logits = b.head(b.blocks(b.embed(window(tokens, i * batch, batch, 0, length)), positions));
    losses.push_back(cross_entropy(logits, window(tokens, i * batch, batch, 1, length)).named("loss"));
  }
  b.graph.set_outputs(losses);
  return precision(c.precision).rewritten(b.graph, c);
}

Graph logits_graph(const ModelConfig& c) {
  Builder b = inference_builder(c);
  Dim seq = Dim::symbol("seq");
  Node tokens = b.graph.input("tokens", DType::I32, {seq});
  Node h = b.blocks(b.embed(reshape(tokens, {1, seq})), positions_of(b.graph, seq));
  b.graph.set_outputs({reshape(b.head(h), {seq, c.vocab_size})});
  return inference_form(b.graph, c);
}

Graph score_graph(const ModelConfig& c) {
  Builder b = inference_builder(c);
  Dim batch = Dim::symbol("batch"), seq = Dim::symbol("seq");
  Node tokens = b.graph.input("tokens", DType::I32, {batch, seq + 1});
  Node logits = b.head(b.blocks(b.embed(window(tokens, 0, batch, 0, seq)), positions_of(b.graph, seq)));
  b.graph.set_outputs({cross_entropy(logits, window(tokens, 0, batch, 1, seq), Reduction::None)});
  return inference_form(b.graph, c);
}

DecodeGraph decode_graph(const ModelConfig& c, std::int64_t capacity) {
  Builder b = inference_builder(c);
  Node token = b.graph.input("token", DType::I32, {1}), position = b.graph.input("position", DType::I32, {1});
  b.use_cache(capacity, position);
  Node h = b.blocks(b.embed(reshape(token, {1, 1})), position);
  Nodes outputs{reshape(b.head(h), {c.vocab_size})};
  std::vector<Update> updates;
  for (auto& state : b.cache_updates) {
    updates.push_back({state.param.name(), int(outputs.size())});
    outputs.push_back(state.next);
  }
  b.graph.set_outputs(outputs);
  return {inference_form(b.graph, c), updates};
}

}  // namespace rlx
