// Attention in primitives: two matmuls around a masked softmax.
#include <fmt/format.h>

#include <cmath>

#include "ops/nn.h"

namespace rlx {

std::span<const std::string_view> enum_names(AttentionMask) {
  static constexpr std::string_view kNames[] = {"none", "causal", "sliding_window", "custom", "bias"};
  return kNames;
}

namespace {

// The mask and the lengths follow q, k and v where they are given.
Nodes attention_inputs(Node q, Node k, Node v, Node mask, Node lengths) {
  Nodes out{q, k, v};
  for (auto& optional : {mask, lengths})
    if (optional) out.push_back(optional);
  return out;
}
AttentionAttrs with_lengths(AttentionAttrs attrs, Node lengths) {
  attrs.has_lengths = bool(lengths);
  return attrs;
}

// The operands with the query heads split into [B, K, H/K, …], and what is known of their sizes.
struct Heads {
  Dim batch, heads, key_heads, group, queries, keys;
};

Heads heads_of(Node q, Node k, Node v) {
  auto shapes = [&] {
    return fmt::format("q {}, k {} and v {}", to_string(q.shape()), to_string(k.shape()), to_string(v.shape()));
  };
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4)
    throw UserError(fmt::format("needs q [B,H,T,D], k [B,K,S,D] and v [B,K,S,E], got {}", shapes()));
  for (int axis : {0, 1, 2})
    if (k.dim(axis) != v.dim(axis)) throw UserError(fmt::format("k and v differ in axis {}: got {}", axis, shapes()));
  if (q.dim(0) != k.dim(0)) throw UserError(fmt::format("batches differ: got {}", shapes()));
  if (q.dim(3) != k.dim(3)) throw UserError(fmt::format("head sizes of q and k differ: got {}", shapes()));
  Dim group = q.dim(1) == k.dim(1) ? Dim(1) : k.dim(1) == Dim(0) ? Dim(0) : floor_div(q.dim(1), k.dim(1));
  if (group * k.dim(1) != q.dim(1))
    throw UserError(fmt::format("{} query heads are no multiple of {} key heads: got {}", q.dim(1).text(),
                                k.dim(1).text(), shapes()));
  return {q.dim(0), q.dim(1), k.dim(1), group, q.dim(2), k.dim(2)};
}

// A mask or bias that broadcasts to [B,H,T,S] as one that broadcasts to [B,K,H/K,T,S].
Node grouped(const char* what, Node mask, const Heads& h) {
  Shape full{h.batch, h.heads, h.queries, h.keys}, shape = mask.shape();
  if (!broadcasts_to(shape, full))
    throw UserError(fmt::format("the {} {} does not broadcast to {}", what, to_string(shape), to_string(full)));
  if (shape.size() < 3) return mask;
  auto head = shape.end() - 3;
  if (*head == Dim(1)) {
    shape.insert(head, 1);
  } else {
    *head = h.group;
    shape.insert(shape.end() - 3, h.key_heads);
  }
  return reshape(mask, shape);
}

// Where a query may see a key by its place, or none where it sees all: broadcasts to [B,1,1,T,S].
Node visible(Node q, Node k, Node lengths, const Heads& h, const AttentionAttrs& attrs) {
  Graph graph = q.graph();
  bool ordered = attrs.mask == AttentionMask::Causal || attrs.mask == AttentionMask::SlidingWindow;
  if (!ordered && !lengths) return none;
  auto number = [&](Node x, int axis) {
    return x.dim(axis).is_number() ? graph.constant(Array(std::vector<std::int64_t>{x.dim(axis).number()}, {}))
                                   : size(x, axis);
  };
  Node key = iota(graph, {h.keys}, 0, DType::I64), end = none, seen = none;
  if (lengths) {
    if (!is_int(lengths.dtype()) || lengths.shape() != Shape{h.batch})
      throw UserError(fmt::format("the key lengths need to be integers of shape [{}], got {}", h.batch.text(),
                                  to_string(lengths.type())));
    end = reshape(to_dtype(lengths, DType::I64), {h.batch, 1, 1, 1, 1});
    seen = key < end;
  }
  if (!ordered) return seen;
  Node query = reshape(iota(graph, {h.queries}, 0, DType::I64), {h.queries, 1});
  if (lengths)
    query = query + (end - number(q, 2));
  else if (h.queries != h.keys)
    query = query + (number(k, 2) - number(q, 2));
  Node before = key <= query;
  seen = seen ? seen & before : before;
  if (attrs.mask == AttentionMask::Causal) return seen;
  return seen & (key > query - graph.constant(Array(std::vector<std::int64_t>{attrs.window}, {})));
}

Node attention_body(const BodyArgs& args) {
  auto& attrs = args.attrs.as<AttentionAttrs>();
  Node q = args.in[0], k = args.in[1], v = args.in[2];
  bool has_mask = attrs.mask == AttentionMask::Custom || attrs.mask == AttentionMask::Bias;
  std::size_t expected = 3 + has_mask + attrs.has_lengths;
  if (args.in.size() != expected)
    throw UserError(fmt::format("the mask kind {} with{} key lengths takes {} inputs, got {}", field_text(attrs.mask),
                                attrs.has_lengths ? "" : "out", expected, args.in.size()));
  if (attrs.mask == AttentionMask::SlidingWindow && attrs.window < 1)
    throw UserError(fmt::format("the window is {}, expected 1 or more", attrs.window));
  if (!(attrs.softcap >= 0)) throw UserError(fmt::format("softcap is {}, expected 0 or more", attrs.softcap));
  Heads h = heads_of(q, k, v);
  Node mask = has_mask ? args.in[3] : none, lengths = attrs.has_lengths ? args.in[expected - 1] : none;
  Node seen = visible(q, k, lengths, h, attrs);
  if (attrs.mask == AttentionMask::Custom) {
    if (mask.dtype() != DType::Bool)
      throw UserError(
          fmt::format("a custom mask must be bool (a float one is a bias), got {}", to_string(mask.type())));
    Node custom = grouped("mask", mask, h);
    seen = seen ? seen & custom : custom;
  }
  DType wide = promote(widen(q).dtype(), promote(widen(k).dtype(), widen(v).dtype()));
  double scale = attrs.scale != 0 ? attrs.scale : 1 / std::sqrt(double(q.dim(3).number()));
  Dim rows = h.group * h.queries;  // the queries that share a key head are rows of one product
  Shape split{h.batch, h.key_heads, h.group, h.queries, h.keys};
  Node scores = matmul(reshape(q, {h.batch, h.key_heads, rows, q.dim(3)}), transpose(k, {0, 1, 3, 2}), wide) * scale;
  scores = reshape(scores, split);
  if (attrs.softcap != 0) scores = attrs.softcap * tanh(scores / attrs.softcap);
  if (attrs.mask == AttentionMask::Bias) {
    if (!is_float(mask.dtype()))
      throw UserError(
          fmt::format("a bias must be a float (a bool one is a custom mask), got {}", to_string(mask.type())));
    scores = scores + grouped("bias", mask, h);
  }
  Node p = reshape(masked_softmax(scores, seen, -1), {h.batch, h.key_heads, rows, h.keys});
  Node out = matmul(p, v, wide);
  return to_dtype(reshape(out, {h.batch, h.heads, h.queries, v.dim(3)}), q.dtype());
}

}  // namespace

constexpr OpDef attention_rules = {
    .min_inputs = 3,
    .max_inputs = 5,
    .amp = AmpClass::Compute,
    .body = [](const BodyArgs& args) { return attention_body(args); },
    .grad = by_body,
};

#define ATTENTION(...) DEFINE_OP(Composite, __VA_ARGS__)
#include "ops/ops.def"

}  // namespace rlx
