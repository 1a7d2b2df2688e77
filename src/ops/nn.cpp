// Softmax, norms, losses and rotary embeddings: bodies in primitives, and gradients where they are simpler than what
// the body would give.
#include "ops/nn.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "ops/eval.h"

namespace rlx {

std::span<const std::string_view> enum_names(Reduction) {
  static constexpr std::string_view kNames[] = {"mean", "sum", "none"};
  return kNames;
}

Node widen(Node x) {
  if (!is_float(x.dtype())) throw UserError(fmt::format("needs a float, got {}", to_string(x.dtype())));
  return x.dtype() == DType::F16 || x.dtype() == DType::BF16 ? cast(x, DType::F32) : x;
}
Node to_dtype(Node x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }
Node part_of_last(Node x, Dim start, Dim size) {
  Shape starts(x.shape().size(), 0), sizes = x.shape();
  starts.back() = std::move(start), sizes.back() = std::move(size);
  return slice(x, starts, sizes, Extents(starts.size(), 1));
}
bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.size() > to.size()) return false;
  for (std::size_t d = 0; d < from.size(); ++d)
    if (from[d] != Dim(1) && from[d] != to[to.size() - from.size() + d]) return false;
  return true;
}
Nodes given(std::initializer_list<Node> inputs) {
  Nodes out = inputs;
  while (!out.empty() && !out.back()) out.pop_back();
  return out;
}

namespace {

// ---------------------------------------------------------------------------------------------- softmax

Node over(const AxisAttrs& attrs, Node x, Node (*reduce)(Node, Axes, bool)) { return reduce(x, {attrs.axis}, true); }

Node softmax_body(Node x, const AxisAttrs& attrs) {
  Node w = widen(x);
  Node e = exp(w - over(attrs, w, max));
  return to_dtype(e / over(attrs, e, sum), x.dtype());
}
Node softmax_grad(const AxisAttrs& attrs, Node y, Node dy) {
  Node p = widen(y), d = widen(dy);
  return to_dtype(p * (d - over(attrs, p * d, sum)), y.dtype());
}

Node log_softmax_body(Node x, const AxisAttrs& attrs) {
  Node w = widen(x);
  Node shifted = w - over(attrs, w, max);
  return to_dtype(shifted - log(over(attrs, exp(shifted), sum)), x.dtype());
}
Node log_softmax_grad(const AxisAttrs& attrs, Node y, Node dy) {
  Node d = widen(dy);
  return to_dtype(d - exp(widen(y)) * over(attrs, d, sum), y.dtype());
}

Node logsumexp_body(Node x, const AxisKeepAttrs& attrs) {
  Node w = widen(x);
  Node top = max(w, {attrs.axis}, true);
  Node shift = where(isinf(top), 0, top);  // a row of -inf gives -inf, one with +inf gives +inf
  Node kept = log(sum(exp(w - shift), {attrs.axis}, true)) + shift;
  return to_dtype(attrs.keepdims ? kept : reshape(kept, reduced_shape(x.shape(), {attrs.axis}, false)), x.dtype());
}
Node logsumexp_grad(const AxisKeepAttrs& attrs, Node x, Node dy) {
  Node p = masked_softmax(widen(x), none, attrs.axis);  // 0 for a row of -inf
  return to_dtype(reshape(widen(dy), reduced_shape(x.shape(), {attrs.axis}, true)) * p, x.dtype());
}

// Softmax over the elements where `mask` holds.
Node masked_softmax_body(Node x, Node mask, const AxisAttrs& attrs) {
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  Node w = widen(x);
  Node scores = mask ? where(mask, w, kNothing) : w;
  Node top = over(attrs, scores, max);
  Node e = exp(scores - where(top == kNothing, 0, top));
  Node total = over(attrs, e, sum);
  return to_dtype(e / where(total == 0, 1, total), x.dtype());
}

// ---------------------------------------------------------------------------------------------- norms

void check_scale(const char* name, Node scale, Node x) {
  if (!broadcasts_to(scale.shape(), x.shape()))
    throw UserError(
        fmt::format("{} of shape {} does not broadcast to {}", name, to_string(scale.shape()), to_string(x.shape())));
}
Axes axes_from(int axis, int rank) {
  Axes out;
  for (int d = normalize_axis(axis, rank); d < rank; ++d) out.push_back(d);
  return out;
}

// The scale of a norm, 1 / sqrt(mean(centred²) + eps), with the variance in two passes.
struct Centred {
  Node centred, scale;
};
Centred centre(Node x, const Axes& axes, double eps, bool subtract_mean) {
  Node w = widen(x);
  Node c = subtract_mean ? w - mean(w, axes, true) : w;
  return {c, rsqrt(mean(c * c, axes, true) + eps)};
}
Node norm_body(std::span<const Node> in, const Axes& axes, double eps, bool subtract_mean) {
  auto [c, r] = centre(in[0], axes, eps, subtract_mean);
  Node y = c * r;
  if (in.size() > 1) check_scale("gamma", in[1], in[0]), y = y * in[1];
  if (in.size() > 2) check_scale("beta", in[2], in[0]), y = y + in[2];
  return to_dtype(y, in[0].dtype());
}
Nodes norm_grad(const GradArgs& g, const Axes& axes, double eps, bool subtract_mean) {
  auto [c, r] = centre(g.x, axes, eps, subtract_mean);
  Node d = widen(g.dy), y = c * r, to_y = g.in.size() > 1 ? d * g.in[1] : d;
  Node away = to_y - y * mean(to_y * y, axes, true);
  if (subtract_mean) away = away - mean(to_y, axes, true);
  return {to_dtype(r * away, g.x.dtype()), d * y, d};
}

Node group_norm_body(const BodyArgs& args) {
  auto& attrs = args.attrs.as<GroupNormAttrs>();
  Node x = args.in[0];
  if (x.rank() < 2) throw UserError(fmt::format("needs [N, C, …], got {}", to_string(x.shape())));
  if (attrs.groups < 1) throw UserError(fmt::format("groups is {}, expected 1 or more", attrs.groups));
  Dim per_group = floor_div(x.dim(1), attrs.groups);
  if (per_group * attrs.groups != x.dim(1))
    throw UserError(fmt::format("{} channels do not divide into {} groups", x.dim(1).text(), attrs.groups));
  Shape grouped = x.shape(), channel(x.shape().size() - 1, 1);
  grouped[1] = per_group;
  grouped.insert(grouped.begin() + 1, attrs.groups);
  channel[0] = x.dim(1);
  Node y = reshape(layer_norm(reshape(widen(x), grouped), none, none, 2, attrs.eps), x.shape());
  for (std::size_t i = 1; i < args.in.size(); ++i) {
    if (args.in[i].shape() != Shape{x.dim(1)})
      throw UserError(fmt::format("{} needs one entry a channel of {}, got {}", i == 1 ? "gamma" : "beta",
                                  to_string(x.shape()), to_string(args.in[i].shape())));
    Node v = reshape(args.in[i], channel);
    y = i == 1 ? y * v : y + v;
  }
  return to_dtype(y, x.dtype());
}

// ---------------------------------------------------------------------------------------------- batch norm

// [C] along the channel axis of x.
Node along_channel(const char* name, Node v, Node x, int channel_axis) {
  int axis = normalize_axis(channel_axis, x.rank());
  if (v.shape() != Shape{x.dim(axis)})
    throw UserError(fmt::format("{} needs one entry a channel (axis {} of {}), got {}", name, axis,
                                to_string(x.shape()), to_string(v.shape())));
  Shape shape(x.shape().size(), 1);
  shape[std::size_t(axis)] = x.dim(axis);
  return reshape(v, shape);
}
Node sum_to_channel(Node x, int channel_axis) {
  Axes axes;
  for (int d = 0; d < x.rank(); ++d)
    if (d != normalize_axis(channel_axis, x.rank())) axes.push_back(d);
  return sum(x, axes, false);
}
Node inverse_deviation(Node var, double eps) { return rsqrt(widen(var) + eps); }

Node batch_norm_body(const BodyArgs& args) {
  auto& attrs = args.attrs.as<BatchNormAttrs>();
  Node x = args.in[0];
  auto channel = [&](const char* name, std::size_t i) {
    return along_channel(name, args.in[i], x, attrs.channel_axis);
  };
  Node y = (widen(x) - channel("mean", 3)) * (channel("gamma", 1) * inverse_deviation(channel("var", 4), attrs.eps)) +
           channel("beta", 2);
  return to_dtype(y, x.dtype());
}
Nodes batch_norm_grad(const GradArgs& g) {
  auto& attrs = g.attrs.as<BatchNormAttrs>();
  Node gamma = g.in[1], mu = g.in[3], var = g.in[4];
  Node to_x = batch_norm_inference_backward_input(g.dy, gamma, var, attrs.channel_axis, attrs.eps);
  Node to_gamma = batch_norm_inference_backward_gamma(g.x, g.dy, mu, var, attrs.channel_axis, attrs.eps);
  Node to_var = -0.5 * to_gamma * gamma / (widen(var) + attrs.eps);
  return {to_x, to_gamma, batch_norm_inference_backward_beta(g.dy, attrs.channel_axis),
          -sum_to_channel(widen(to_x), attrs.channel_axis), to_var};
}

// ---------------------------------------------------------------------------------------------- cross entropy

struct Labels {
  Node valid, index;  // where a label counts, and the class there
};
Labels labels_of(Node logits, Node labels, const CrossEntropyAttrs& attrs) {
  if (logits.rank() < 1 || !is_int(labels.dtype()) ||
      labels.shape() != Shape(logits.shape().begin(), logits.shape().end() - 1))
    throw UserError(fmt::format("needs logits [..., classes] and integer labels [...], got {} and {}",
                                to_string(logits.type()), to_string(labels.type())));
  Node wide = to_dtype(labels, DType::I64);
  Node valid = wide != labels.graph().constant(Array(std::vector<std::int64_t>{attrs.ignore_index}, {}));
  return {valid, where(valid, wide, 0)};
}
// What a mean divides by: no label at all gives 0, not NaN.
Node label_count(Node valid, DType dtype) {
  Axes all(std::size_t(valid.rank()));
  std::iota(all.begin(), all.end(), 0);
  return maximum(sum(cast(valid, dtype), all, false), 1);
}

Node cross_entropy_body(Node logits, Node labels, const CrossEntropyAttrs& attrs) {
  Node x = widen(logits);
  auto [valid, index] = labels_of(logits, labels, attrs);
  Node picked = gather_elements(x, unsqueeze(index, {-1}), -1, false), top = max(x, {-1}, true);
  Node loss = reshape(log(sum(exp(x - top), {-1}, true)) - (picked - top), labels.shape());
  loss = where(valid, loss, 0);
  if (attrs.reduction == Reduction::None) return loss;
  Axes all(std::size_t(loss.rank()));
  std::iota(all.begin(), all.end(), 0);
  Node total = sum(loss, all, false);
  return attrs.reduction == Reduction::Sum ? total : total / label_count(valid, x.dtype());
}

Node cross_entropy_grad(Node logits, Node labels, const CrossEntropyAttrs& attrs, Node dy) {
  Node x = widen(logits);
  auto [valid, index] = labels_of(logits, labels, attrs);
  Node scale = attrs.reduction == Reduction::Mean ? dy / label_count(valid, x.dtype()) : dy;
  scale = where(valid, scale, 0);
  Node p = softmax(x, -1);
  Node is_label = iota(logits.graph(), {logits.dim(-1)}, 0, DType::I64) == unsqueeze(index, {-1});
  return to_dtype(where(is_label, p - 1, p) * unsqueeze(scale, {-1}), logits.dtype());
}

// The body by itself would name a negative label by where it points to.
Array eval_cross_entropy(const EvalArgs& e) {
  auto labels = e.in[1].to_vector<std::int64_t>();
  std::int64_t classes = e.in[0].shape().back(), ignored = e.attrs.as<CrossEntropyAttrs>().ignore_index;
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (labels[i] != ignored && (labels[i] < 0 || labels[i] >= classes))
      throw UserError(fmt::format("label {} at position {} is outside [0, {})", labels[i], i, classes));
  OpDef by_its_body = e.op;
  by_its_body.eval = {};
  return evaluate_op({e.in, e.attrs, e.dtype, e.shape, e.symbols, by_its_body});
}

// ---------------------------------------------------------------------------------------------- rope

// Positions [T] or [B,T] as a tensor of x's rank with a last axis of size 1.
Node angles_like(Node x, Node positions, DType dtype) {
  Shape t{x.dim(-2)}, bt = x.rank() > 2 ? Shape{x.dim(0), x.dim(-2)} : t;
  if (!is_int(positions.dtype()) || (positions.shape() != t && positions.shape() != bt))
    throw UserError(fmt::format("needs integer positions of shape {}{} for x of {}, got {}", to_string(t),
                                x.rank() > 2 ? " or " + to_string(bt) : "", to_string(x.shape()),
                                to_string(positions.type())));
  Shape shape(x.shape().size(), 1);
  shape[shape.size() - 2] = x.dim(-2);
  if (positions.rank() == 2) shape[0] = x.dim(0);
  return reshape(cast(positions, dtype), shape);
}

Node rope_body(Node x, Node positions, const RopeAttrs& attrs) {
  if (x.rank() < 2) throw UserError(fmt::format("needs [..., T, D], got {}", to_string(x.shape())));
  Node w = widen(x);
  std::int64_t dims = attrs.dims ? attrs.dims : x.dim(-1).number(), half = dims / 2;
  if (dims < 2 || dims % 2 != 0 || (x.dim(-1).is_number() && dims > x.dim(-1).number()))
    throw UserError(fmt::format("rotates pairs: got {} dims of {}, expected an even number from 2 to the last axis",
                                dims, to_string(x.shape())));
  Array turns(DType::F64, {half});
  for (std::int64_t i = 0; i < half; ++i)
    turns.values<double>()[std::size_t(i)] = std::pow(attrs.base, -2.0 * double(i) / double(dims));
  Node angle = angles_like(x, positions, w.dtype()) * x.graph().constant(turns.cast(w.dtype()));
  Node c = cos(angle), s = attrs.inverse ? -sin(angle) : sin(angle);
  Node pairs = part_of_last(w, 0, dims), first, second;
  Shape split = pairs.shape();
  split.back() = half;
  auto column = [&](Shape shape) { return shape.push_back(1), shape; };
  if (attrs.interleaved) {
    Shape two = split;
    two.push_back(2);
    pairs = reshape(pairs, two);
    first = reshape(part_of_last(pairs, 0, 1), split), second = reshape(part_of_last(pairs, 1, 1), split);
  } else {
    first = part_of_last(pairs, 0, half), second = part_of_last(pairs, half, half);
  }
  Node turned_first = first * c - second * s, turned_second = second * c + first * s, turned;
  if (attrs.interleaved) {
    turned = concat({reshape(turned_first, column(split)), reshape(turned_second, column(split))}, -1);
    split.back() = dims;
    turned = reshape(turned, split);
  } else {
    turned = concat({turned_first, turned_second}, -1);
  }
  if (x.dim(-1) != Dim(dims)) turned = concat({turned, part_of_last(w, dims, x.dim(-1) - dims)}, -1);
  return to_dtype(turned, x.dtype());
}
Node rope_grad(const GradArgs& g) {
  RopeAttrs back = g.attrs.as<RopeAttrs>();
  back.inverse = !back.inverse;
  return rope(g.dy, g.b, back.base, back.interleaved, back.dims, back.inverse);
}

}  // namespace

constexpr OpDef softmax_rules = {
    .amp = AmpClass::Reduction,
    .body = [](Node x, const AxisAttrs& attrs) { return softmax_body(x, attrs); },
    .grad = GRAD(softmax_grad(attrs.as<AxisAttrs>(), y, dy)),
};
constexpr OpDef masked_softmax_rules = {
    .min_inputs = 1,
    .max_inputs = 2,
    .amp = AmpClass::Reduction,
    .body =
        [](const BodyArgs& args) {
          return masked_softmax_body(args.in[0], args.in.size() > 1 ? args.in[1] : none, args.attrs.as<AxisAttrs>());
        },
    .grad = GRAD(softmax_grad(attrs.as<AxisAttrs>(), y, dy), none),
};
constexpr OpDef log_softmax_rules = {
    .amp = AmpClass::Reduction,
    .body = [](Node x, const AxisAttrs& attrs) { return log_softmax_body(x, attrs); },
    .grad = GRAD(log_softmax_grad(attrs.as<AxisAttrs>(), y, dy)),
};
constexpr OpDef logsumexp_rules = {
    .amp = AmpClass::Reduction,
    .body = [](Node x, const AxisKeepAttrs& attrs) { return logsumexp_body(x, attrs); },
    .grad = GRAD(logsumexp_grad(attrs.as<AxisKeepAttrs>(), x, dy)),
};
constexpr OpDef layer_norm_rules = {
    .min_inputs = 1,
    .max_inputs = 3,
    .amp = AmpClass::Reduction,
    .body =
        [](const BodyArgs& args) {
          auto& attrs = args.attrs.as<LayerNormAttrs>();
          return norm_body(args.in, axes_from(attrs.axis, args.in[0].rank()), attrs.eps, true);
        },
    .grad =
        [](const GradArgs& g) {
          return norm_grad(g, axes_from(g.attrs.as<LayerNormAttrs>().axis, g.x.rank()),
                           g.attrs.as<LayerNormAttrs>().eps, true);
        },
};
constexpr OpDef rms_norm_rules = {
    .min_inputs = 1,
    .max_inputs = 2,
    .amp = AmpClass::Reduction,
    .body = [](const BodyArgs& args) { return norm_body(args.in, {-1}, args.attrs.as<EpsAttrs>().eps, false); },
    .grad = [](const GradArgs& g) { return norm_grad(g, {-1}, g.attrs.as<EpsAttrs>().eps, false); },
};
constexpr OpDef group_norm_rules = {.min_inputs = 1,
                                    .max_inputs = 3,
                                    .amp = AmpClass::Reduction,
                                    .body = [](const BodyArgs& args) { return group_norm_body(args); },
                                    .grad = by_body};

constexpr OpDef batch_norm_inference_rules = {.amp = AmpClass::Reduction,
                                              .body = [](const BodyArgs& args) { return batch_norm_body(args); },
                                              .grad = batch_norm_grad};
constexpr OpDef batch_norm_inference_backward_input_rules = {
    .amp = AmpClass::Reduction,
    .body =
        [](Node dy, Node gamma, Node var, const BatchNormAttrs& attrs) {
          Node scale = along_channel("gamma", gamma, dy, attrs.channel_axis) *
                       inverse_deviation(along_channel("var", var, dy, attrs.channel_axis), attrs.eps);
          return to_dtype(widen(dy) * scale, dy.dtype());
        },
    .grad = by_body,
};
constexpr OpDef batch_norm_inference_backward_gamma_rules = {
    .amp = AmpClass::Reduction,
    .body =
        [](Node x, Node dy, Node mu, Node var, const BatchNormAttrs& attrs) {
          Node centred = widen(x) - along_channel("mean", mu, x, attrs.channel_axis);
          return sum_to_channel(
              widen(dy) * (centred * inverse_deviation(along_channel("var", var, x, attrs.channel_axis), attrs.eps)),
              attrs.channel_axis);
        },
    .grad = by_body,
};
constexpr OpDef batch_norm_inference_backward_beta_rules = {
    .amp = AmpClass::Reduction,
    .body = [](Node dy, const ChannelAttrs& attrs) { return sum_to_channel(widen(dy), attrs.channel_axis); },
    .grad = by_body,
};

constexpr OpDef cross_entropy_rules = {
    .amp = AmpClass::Reduction,
    .body = [](Node logits, Node labels,
               const CrossEntropyAttrs& attrs) { return cross_entropy_body(logits, labels, attrs); },
    .eval = eval_cross_entropy,
    .grad = GRAD(cross_entropy_grad(a, b, attrs.as<CrossEntropyAttrs>(), dy), none),
};
constexpr OpDef rope_rules = {
    .amp = AmpClass::Elementwise,
    .body = [](Node x, Node positions, const RopeAttrs& attrs) { return rope_body(x, positions, attrs); },
    .grad = GRAD(rope_grad(args), none),
};

#define NN(...) DEFINE_OP(Composite, __VA_ARGS__)
#include "ops/ops.def"

}  // namespace rlx
