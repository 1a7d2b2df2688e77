// The rows, family by family.
#include "ops/cases.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.h"

namespace rlx {
namespace {

using Rows = std::vector<OpCase>;

#define CASE(...) [](const Nodes& n, Graph g) -> Node { (void)n, (void)g; return __VA_ARGS__; }
// One input of [2,3] in [low, high].
#define ROW1(name, low, high, ...) {#name, {{{2, 3}, low, high}}, CASE(name(n[0])), __VA_ARGS__}
// Two that broadcast: [2,1,3] and [4,1].
#define ROW2(name, low, high, low2, high2, ...) \
  {#name, {{{2, 1, 3}, low, high}, {{4, 1}, low2, high2}}, CASE(name(n[0], n[1])), __VA_ARGS__}

constexpr auto kNone = Gradient::None, kChecked = Gradient::Checked, kRule = Gradient::Rule;

Rows elementwise() {
  return {
      ROW1(neg, -2, 2, Over::Number),
      ROW1(abs, -2, 2, Over::Number),
      ROW1(sign, -2, 2, Over::Number, kRule),
      ROW1(exp, -2, 2),
      ROW1(exp2, -2, 2),
      ROW1(expm1, -2, 2),
      ROW1(log, 0.2, 4),
      ROW1(log2, 0.2, 4),
      ROW1(log1p, -0.8, 4),
      ROW1(sqrt, 0.2, 4),
      ROW1(rsqrt, 0.2, 4),
      ROW1(sin, -3, 3),
      ROW1(cos, -3, 3),
      ROW1(tan, -1.2, 1.2),
      ROW1(asin, -0.9, 0.9),
      ROW1(acos, -0.9, 0.9),
      ROW1(atan, -2, 2),
      ROW1(sinh, -2, 2),
      ROW1(cosh, -2, 2),
      ROW1(tanh, -2, 2),
      ROW1(asinh, -2, 2),
      ROW1(acosh, 1.2, 4),
      ROW1(atanh, -0.8, 0.8),
      ROW1(erf, -2, 2),
      ROW1(sigmoid, -3, 3),
      ROW1(round, -3, 3, Over::Number, kRule),
      ROW1(floor, -3, 3, Over::Number, kRule),
      ROW1(ceil, -3, 3, Over::Number, kRule),
      ROW1(trunc, -3, 3, Over::Number, kRule),
      ROW1(stop_gradient, -2, 2, Over::All, kRule),
      ROW1(isnan, -2, 2, Over::Float, kNone),
      ROW1(isinf, -2, 2, Over::Float, kNone),
      ROW1(isfinite, -2, 2, Over::Float, kNone),
      ROW1(logical_not, 0, 1, Over::Bool, kNone),
      ROW1(bitwise_not, -5, 5, Over::IntBool, kNone),
      ROW2(add, -2, 2, -2, 2, Over::Number),
      ROW2(sub, -2, 2, -2, 2, Over::Number),
      ROW2(mul, -2, 2, -2, 2, Over::Number),
      ROW2(div, -5, 5, 1, 3, Over::Number),
      ROW2(floor_div, -5, 5, 1, 3, Over::Number, kRule),
      ROW2(mod, -5, 5, 1, 3, Over::Number),
      ROW2(fmod, -5, 5, 1, 3, Over::Number),
      ROW2(pow, 0.5, 3, 0, 2, Over::Number),
      ROW2(atan2, -2, 2, 0.5, 2),
      ROW2(maximum, -2, 2, -2, 2, Over::Number),
      ROW2(minimum, -2, 2, -2, 2, Over::Number),
      ROW2(equal, -2, 2, -2, 2, Over::All, kNone),
      ROW2(not_equal, -2, 2, -2, 2, Over::All, kNone),
      ROW2(less, -2, 2, -2, 2, Over::All, kNone),
      ROW2(less_equal, -2, 2, -2, 2, Over::All, kNone),
      ROW2(greater, -2, 2, -2, 2, Over::All, kNone),
      ROW2(greater_equal, -2, 2, -2, 2, Over::All, kNone),
      ROW2(logical_and, 0, 1, 0, 1, Over::Bool, kNone),
      ROW2(logical_or, 0, 1, 0, 1, Over::Bool, kNone),
      ROW2(logical_xor, 0, 1, 0, 1, Over::Bool, kNone),
      ROW2(bitwise_and, -5, 5, -5, 5, Over::IntBool, kNone),
      ROW2(bitwise_or, -5, 5, -5, 5, Over::IntBool, kNone),
      ROW2(bitwise_xor, -5, 5, -5, 5, Over::IntBool, kNone),
      ROW2(left_shift, 0, 5, 0, 3, Over::Int, kNone),
      ROW2(right_shift, -50, 50, 0, 3, Over::Int, kNone),
      {"where", {{{2, 3}, 0, 1, Fill::Bool}, {{2, 1, 3}}, {{3}}}, CASE(where(n[0], n[1], n[2])), Over::All},
      {"cast", {{{2, 3}}}, CASE(cast(n[0], DType::F64)), Over::All},
      {"cast", {{{2, 3}}}, CASE(cast(n[0], DType::BF16)), Over::Number, kRule, 0, 16, "bf16"},
      {"cast", {{{2, 3}, -50, 50}}, CASE(cast(n[0], DType::I8)), Over::Number, kNone, 0, 16, "i8"},
      {"cast", {{{2, 3}, 0, 1}}, CASE(cast(n[0], DType::I32)), Over::Bool, kNone, 0, 16, "from bool"},
  };
}

Rows composed() {
  return {
      ROW1(relu, -2, 2, Over::Number),
      ROW2(relu_backward, -2, 2, -2, 2, Over::Number),
      {"clamp", {{{2, 3}, -3, 3}, {{3}, -2, -1}, {{2, 1}, 1, 2}}, CASE(clamp(n[0], n[1], n[2])), Over::Number},
      ROW1(reciprocal, 0.5, 3),
      ROW1(square, -2, 2, Over::Number),
      ROW1(relu2, -2, 2, Over::Number),
      ROW1(relu6, -4, 9, Over::Number),
      ROW1(silu, -3, 3, Over::Float, kChecked, 2),
      ROW1(gelu, -3, 3, Over::Float, kChecked, 6),
      ROW1(gelu_tanh, -3, 3, Over::Float, kChecked, 12, 60),
      ROW1(softplus, -3, 3, Over::Float, kChecked, 3),
      ROW1(mish, -3, 3, Over::Float, kChecked, 6),
      ROW1(hard_sigmoid, -4, 4, Over::Float, kChecked, 1.5),
      ROW1(hard_swish, -4, 4, Over::Float, kChecked, 4),
      ROW1(softsign, -3, 3, Over::Float, kChecked, 2),
      ROW1(erfc, -2, 2, Over::Float, kChecked, 1),
      ROW2(logaddexp, -2, 2, -2, 2, Over::Float, kChecked, 4),
#define BACKWARD(kind, low, high, error)                                                                   \
  {"activation_backward", {{{2, 3}, low, high}, {{2, 3}}},                                                 \
   CASE(activation_backward(n[0], n[1], Activation::kind)), Over::Float, kChecked, error, 100, #kind}
      BACKWARD(Relu, -2, 2, 0),
      BACKWARD(Sigmoid, -3, 3, 4),
      BACKWARD(Tanh, -2, 2, 6),
      BACKWARD(Silu, -3, 3, 12),
      BACKWARD(Gelu, -3, 3, 12),
      BACKWARD(GeluTanh, -3, 3, 40),
      BACKWARD(Exp, -2, 2, 4),
      BACKWARD(Log, 0.5, 3, 4),
      BACKWARD(Sqrt, 0.5, 3, 4),
      BACKWARD(Rsqrt, 0.5, 3, 6),
      BACKWARD(Neg, -2, 2, 0),
      BACKWARD(Abs, -2, 2, 0),
      BACKWARD(Sin, -3, 3, 4),
      BACKWARD(Cos, -3, 3, 4),
      BACKWARD(Tan, -1, 1, 12),
      BACKWARD(Atan, -2, 2, 4),
      BACKWARD(Round, -2, 2, 0),
      BACKWARD(Floor, -2, 2, 0),
      BACKWARD(Ceil, -2, 2, 0),
  };
}

Rows reductions() {
  CaseInput x{{2, 3, 4}}, distinct{{2, 3, 4}, -2, 2, Fill::Distinct};
  return {
      {"sum", {x}, CASE(sum(n[0], {-1})), Over::Number},
      {"sum", {x}, CASE(sum(n[0], {0, 2}, true)), Over::Number, kChecked, 0, 16, "kept"},
      {"mean", {x}, CASE(mean(n[0], {1, 2})), Over::Float, kChecked, 2},
      {"mean", {x}, CASE(mean(n[0], {0}, true)), Over::Float, kChecked, 2, 16, "kept"},
      {"max", {distinct}, CASE(max(n[0], {1})), Over::Number},
      {"max", {distinct}, CASE(max(n[0], {0, -1}, true)), Over::Number, kChecked, 0, 16, "kept"},
      {"min", {distinct}, CASE(min(n[0], {0, 1, 2})), Over::Number},
      {"prod", {{{2, 3, 2}, 0.5, 1.5}}, CASE(prod(n[0], {1, 2})), Over::Number},
      {"prod", {{{2, 3, 2}, -1.5, 1.5}}, CASE(prod(n[0], {0}, true)), Over::Number, kChecked, 0, 16, "kept"},
      {"any", {{{2, 3}, -1, 1}}, CASE(any(n[0], {1})), Over::IntBool, kNone},
      {"all", {{{2, 3}, -1, 1}}, CASE(all(n[0], {0}, true)), Over::IntBool, kNone},
      {"argmax", {distinct}, CASE(argmax(n[0], 1)), Over::Number, kNone},
      {"argmin", {distinct}, CASE(argmin(n[0], -1, true)), Over::Number, kNone},
      {"cumsum", {x}, CASE(cumsum(n[0], 1)), Over::Number},
      {"cumsum", {x}, CASE(cumsum(n[0], -1, true, true)), Over::Number, kChecked, 0, 16, "exclusive, reverse"},
      {"cumprod", {{{2, 4}, -1.5, 1.5}}, CASE(cumprod(n[0], 1)), Over::Number},
      {"cumprod", {{{3, 2}, -1.5, 1.5}}, CASE(cumprod(n[0], 0, true)), Over::Number, kChecked, 0, 16, "exclusive"},
      {"cumprod", {{{3, 2}, -1.5, 1.5}}, CASE(cumprod(n[0], 0, false, true)), Over::Number, kChecked, 0, 16, "reverse"},
      {"cumprod", {{{3, 2}, -1.5, 1.5}}, CASE(cumprod(n[0], 0, true, true)), Over::Number, kChecked, 0, 16, "exclusive, reverse"},
  };
}

Rows movement() {
  CaseInput x{{2, 3, 4}};
  return {
      {"reshape", {x}, CASE(reshape(n[0], {4, 6})), Over::All},
      {"expand", {{{2, 1, 3}}}, CASE(expand(n[0], {2, 2, 4, 3})), Over::All},
      {"transpose", {x}, CASE(transpose(n[0], {2, 0, 1})), Over::All},
      {"slice", {x}, CASE(slice(n[0], {0, 1, 0}, {2, 2, 4}, {1, 1, 1})), Over::All},
      {"slice", {{{2, 7}}}, CASE(slice(n[0], {1, 6}, {2, 3}, {-1, -2})), Over::All, kChecked, 0, 16, "backwards"},
      {"slice", {{{2, 7}}}, CASE(slice(n[0], {0, 1}, {2, 2}, {1, 4})), Over::All, kChecked, 0, 16, "steps"},
      {"pad", {{{2, 3}}}, CASE(pad(n[0], {1, 0}, {0, 2}, 1)), Over::All},
      {"concat", {{{2, 1, 3}}, {{2, 2, 3}}, {{2, 0, 3}}}, CASE(concat(n, 1)), Over::All},
      {"flip", {x}, CASE(flip(n[0], {0, -1})), Over::All},
      {"iota", {{{2}, 0, 2, Fill::Index}}, CASE(iota(g, {3, 4}, 1, DType::F32)), Over::Fixed, kNone},
  };
}

Rows index() {
  CaseInput x{{3, 4, 2}}, at{{2, 3}, -4, 4, Fill::Index}, distinct{{3, 5}, -2, 2, Fill::Distinct};
  return {
      {"gather", {x, at}, CASE(gather(n[0], n[1], 1)), Over::All},
      {"gather", {x, {{}, 0, 3, Fill::Index}}, CASE(gather(n[0], n[1], 0)), Over::All, kChecked, 0, 16, "scalar"},
      {"scatter", {x, at, {{3, 2, 3, 2}}}, CASE(scatter(n[0], n[1], n[2], 1, ScatterMode::Set)), Over::All},
      {"scatter", {x, at, {{3, 2, 3, 2}}}, CASE(scatter(n[0], n[1], n[2], 1, ScatterMode::Add)), Over::Number, kChecked, 0, 16, "add"},
      {"gather_elements", {x, {{2, 5, 2}, -4, 4, Fill::Index}}, CASE(gather_elements(n[0], n[1], 1)), Over::All},
      {"scatter_elements", {x, {{2, 5, 2}, -4, 4, Fill::Index}, {{2, 6, 2}}}, CASE(scatter_elements(n[0], n[1], n[2], 1, ScatterMode::Set)), Over::All},
      {"scatter_elements", {x, {{2, 5, 2}, -4, 4, Fill::Index}, {{2, 5, 3}}}, CASE(scatter_elements(n[0], n[1], n[2], 1, ScatterMode::Add)), Over::Number, kChecked, 0, 16, "add"},
      {"size", {x}, CASE(size(n[0], 1)), Over::All, kNone},
      {"argsort", {distinct}, CASE(argsort(n[0])), Over::Number, kNone},
      {"argsort", {distinct}, CASE(argsort(n[0], 0, true)), Over::Number, kNone, 0, 16, "descending"},
      {"sort", {distinct}, CASE(sort(n[0], 1, true)), Over::Number},
      {"one_hot", {{{2, 3}, -4, 4, Fill::Index}}, CASE(one_hot(n[0], 4)), Over::Fixed, kNone},
  };
}

Rows random() {
  CaseInput seed{{}, 0, 100, Fill::Seed};
  return {
      {"random_uniform", {seed}, CASE(random_uniform(n[0], {3, 5}, -1, 2)), Over::Fixed, kNone},
      {"random_normal", {seed}, CASE(random_normal(n[0], {3, 5}, 1, 0.5, DType::F16)), Over::Fixed, kNone},
      {"random_bernoulli", {seed}, CASE(random_bernoulli(n[0], {3, 5}, 0.4)), Over::Fixed, kNone},
  };
}

PoolAttrs pool_1d() { return {.kernel = {3}, .strides = {2}, .low = {1}, .high = {1}, .ceil_mode = true}; }
PoolAttrs pool_2d() { return {.kernel = {2, 3}, .strides = {1, 2}, .low = {1, 0}, .dilation = {2, 1}}; }
PoolAttrs padded(PoolAttrs pool) {
  pool.count_include_pad = true;
  return pool;
}

Rows pools() {
  CaseInput a{{2, 2, 6}, -2, 2, Fill::Distinct}, b{{1, 2, 4, 5}, -2, 2, Fill::Distinct}, c{{1, 1, 3, 2, 3}, -2, 2, Fill::Distinct};
  return {
      {"max_pool", {a}, CASE(max_pool(n[0], pool_1d())), Over::Number},
      {"max_pool", {b}, CASE(max_pool(n[0], pool_2d())), Over::Number, kChecked, 0, 16, "2-D"},
      {"max_pool", {c}, CASE(max_pool(n[0], {.kernel = {2, 2, 2}})), Over::Number, kChecked, 0, 16, "3-D"},
      {"max_pool_indices", {b}, CASE(max_pool_indices(n[0], pool_2d())), Over::Number, kNone},
      {"avg_pool", {a}, CASE(avg_pool(n[0], pool_1d()))},
      {"avg_pool", {b}, CASE(avg_pool(n[0], padded(pool_2d()))), Over::Float, kChecked, 0, 16, "2-D"},
      {"avg_pool", {c}, CASE(avg_pool(n[0], {.kernel = {2, 1, 2}})), Over::Float, kChecked, 0, 16, "3-D"},
      {"avg_pool_backward", {{{2, 2, 4}}}, CASE(avg_pool_backward(n[0], {2, 2, 6}, pool_1d()))},
  };
}

ConvAttrs conv_2d() { return {.strides = {2, 1}, .low = {1, 0}, .high = {1, 2}, .dilation = {1, 2}, .groups = 2}; }

Rows contractions() {
  CaseInput x{{1, 2, 5, 4}}, w{{4, 1, 3, 2}}, y{{1, 4, 3, 4}};
  return {
      {"matmul", {{{2, 3}}, {{3, 4}}}, CASE(matmul(n[0], n[1])), Over::Number},
      {"matmul", {{{2, 1, 2, 3}}, {{3, 3, 2}}}, CASE(matmul(n[0], n[1])), Over::Number, kChecked, 0, 16, "batched"},
      {"matmul", {{{3}}, {{2, 3, 2}}}, CASE(matmul(n[0], n[1])), Over::Number, kChecked, 0, 16, "vector"},
      {"matmul", {{{2, 0}}, {{0, 3}}}, CASE(matmul(n[0], n[1])), Over::Number, kChecked, 0, 16, "empty"},
      {"matmul", {{{2, 3}, -9, 9}, {{3, 4}, -9, 9}}, CASE(matmul(n[0], n[1], DType::I64)), Over::Int, kNone, 0, 16, "wide"},
      {"dot_general", {{{2, 3, 4}}, {{4, 2, 5, 3}}}, CASE(dot_general(n[0], n[1], {0}, {1}, {2, 1}, {0, 3})), Over::Number},
      {"conv", {x, w}, CASE(conv(n[0], n[1], conv_2d()))},
      {"conv", {{{2, 3, 6}}, {{2, 3, 3}}}, CASE(conv(n[0], n[1], {.low = {1}, .high = {1}})), Over::Float, kChecked, 0, 16, "1-D"},
      {"conv_backward_input", {y, w}, CASE(conv_backward_input(n[0], n[1], conv_2d(), {5, 4}))},
      {"conv_backward_weight", {x, y}, CASE(conv_backward_weight(n[0], n[1], conv_2d(), {3, 2}))},
      {"conv_transpose", {{{1, 2, 3}}, {{2, 2, 3}}}, CASE(conv_transpose(n[0], n[1], {.strides = {2}, .low = {1}, .output_padding = {1}}))},
  };
}

AttentionAttrs heads(AttentionMask mask, std::int64_t window = 0, double softcap = 0) { return {.mask = mask, .window = window, .softcap = softcap}; }

Rows networks() {
  CaseInput x{{2, 3, 4}}, channel{{3}, 0.5, 2}, q{{1, 4, 3, 4}}, k{{1, 2, 5, 4}}, entry{{5, 3}, 0, 4, Fill::Index};
  return {
      {"softmax", {x}, CASE(softmax(n[0])), Over::Float, kChecked, 1},
      {"softmax", {x}, CASE(softmax(n[0], 1)), Over::Float, kChecked, 1, 16, "axis"},
      {"masked_softmax", {x, {{3, 4}, 0, 1, Fill::Bool}}, CASE(masked_softmax(n[0], n[1])), Over::Float, kChecked, 1},
      {"log_softmax", {x}, CASE(log_softmax(n[0])), Over::Float, kChecked, 2},
      {"logsumexp", {x}, CASE(logsumexp(n[0], 1, true)), Over::Float, kChecked, 2},
      {"layer_norm", {x, {{4}}, {{4}}}, CASE(layer_norm(n[0], n[1], n[2])), Over::Float, kChecked, 4},
      {"layer_norm", {x}, CASE(layer_norm(n[0], none, none, 1)), Over::Float, kChecked, 4, 16, "plain"},
      {"rms_norm", {x, {{4}}}, CASE(rms_norm(n[0], n[1])), Over::Float, kChecked, 4},
      {"group_norm", {{{2, 4, 3}}, {{4}}, {{4}}}, CASE(group_norm(n[0], n[1], n[2], 2)), Over::Float, kChecked, 4},
      {"batch_norm_inference", {x, {{3}}, {{3}}, {{3}}, channel}, CASE(batch_norm_inference(n[0], n[1], n[2], n[3], n[4])), Over::Float, kChecked, 8},
      {"batch_norm_inference", {x, {{4}}, {{4}}, {{4}}, {{4}, 0.5, 2}}, CASE(batch_norm_inference(n[0], n[1], n[2], n[3], n[4], -1)), Over::Float, kChecked, 8, 16, "last"},
      {"batch_norm_inference_backward_input", {x, {{3}}, channel}, CASE(batch_norm_inference_backward_input(n[0], n[1], n[2], 1, 1e-5)), Over::Float, kChecked, 8},
      {"batch_norm_inference_backward_gamma", {x, x, {{3}}, channel}, CASE(batch_norm_inference_backward_gamma(n[0], n[1], n[2], n[3], 1, 1e-5)), Over::Float, kChecked, 16},
      {"batch_norm_inference_backward_beta", {x}, CASE(batch_norm_inference_backward_beta(n[0], -1)), Over::Float, kChecked, 4},
      {"cross_entropy", {{{3, 4}}, {{3}, 0, 4, Fill::Index}}, CASE(cross_entropy(n[0], n[1])), Over::Float, kChecked, 4},
      {"cross_entropy", {{{3, 4}}, {{3}, 0, 4, Fill::Index}}, CASE(cross_entropy(n[0], n[1], Reduction::None)), Over::Float, kChecked, 4, 16, "none"},
      {"rope", {{{1, 2, 3, 4}}, {{3}, 0, 9, Fill::Index}}, CASE(rope(n[0], n[1])), Over::Float, kChecked, 4},
      {"rope", {{{1, 2, 3, 6}}, {{3}, 0, 9, Fill::Index}}, CASE(rope(n[0], n[1], 100, true, 4)), Over::Float, kChecked, 4, 16, "interleaved"},
      {"attention", {q, k, k}, CASE(attention(n[0], n[1], n[2])), Over::Float, kChecked, 4},
      {"attention", {q, k, k}, CASE(attention(n[0], n[1], n[2], heads(AttentionMask::Causal, 0, 5))), Over::Float, kChecked, 4, 16, "causal, capped"},
      {"attention", {q, k, k}, CASE(attention(n[0], n[1], n[2], heads(AttentionMask::SlidingWindow, 2))), Over::Float, kChecked, 4, 16, "window"},
      {"attention", {q, k, k, {{3, 5}, 0, 1, Fill::Bool}, {{1}, 3, 5, Fill::Index}}, CASE(attention(n[0], n[1], n[2], heads(AttentionMask::Custom), n[3], n[4])), Over::Float, kChecked, 4, 16, "mask, lengths"},
      {"attention", {q, k, k, {{3, 5}}}, CASE(attention(n[0], n[1], n[2], heads(AttentionMask::Bias), n[3])), Over::Float, kChecked, 4, 16, "bias"},
      {"synth_matmul", {{{2, 3, 6}}, entry, {{4, 2}}}, CASE(synth_matmul(n[0], cast(n[1], DType::U8), n[2], {2, 4})), Over::Float, kChecked, 2},
      {"synth_matmul", {{{6}}, entry, {{4, 2}}}, CASE(synth_matmul(n[0], cast(n[1], DType::U8), n[2], {2, 4})), Over::Float, kChecked, 2, 16, "vector"},
  };
}

// Values in [0, 1) that do not depend on the dtype.
std::vector<double> numbers(const CaseInput& input, std::uint64_t stream) {
  std::vector<double> out(static_cast<std::size_t>(count(input.shape)));
  PhiloxStream random(20, stream);
  for (auto& v : out) v = random.next_uniform();
  if (input.fill == Fill::Distinct) {  // ranks instead
    std::vector<std::size_t> order(out.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, [&](auto i, auto k) { return out[i] < out[k]; });
    for (std::size_t i = 0; i < order.size(); ++i) out[order[i]] = double(i) / double(order.size());
  }
  return out;
}

// Scaled tensors of the case's input.
struct Scaled {
  Node codes, scale, tensor_scale;
};
Scaled scaled(Node x, Format format, ScaleLayout layout) {
  Node tensor_scale = layout == ScaleLayout::Nvfp4 ? scaled_quant_tensor_scale(x) : none;
  Node scale = scaled_quant_scale(x, format, layout, MxRule::Ceil, tensor_scale);
  return {scaled_quantize(x, scale, format, layout, tensor_scale), scale, tensor_scale};
}
Node scaled_value(Node x, Format format, ScaleLayout layout) {
  auto [codes, scale, tensor_scale] = scaled(x, format, layout);
  return scaled_dequantize(codes, scale, format, layout, tensor_scale);
}
Node scaled_product(Node a, Node b, Format format, ScaleLayout layout, Node bias = none, bool quantize_gradient = false) {
  auto l = scaled(a, format, layout), r = scaled(b, format, layout);
  ScaledMatmulAttrs attrs{.lhs_format = format, .rhs_format = format, .scale_layout = layout, .quantize_gradient = quantize_gradient};
  if (layout == ScaleLayout::Nvfp4) attrs.gradient_format = Format::F4E2M1;
  return scaled_matmul(l.codes, r.codes, l.scale, r.scale, attrs, l.tensor_scale, r.tensor_scale, bias);
}

Rows quantization() {
  constexpr auto kE4M3 = Format::F8E4M3, kE2M1 = Format::F4E2M1;
  constexpr auto kTensor = ScaleLayout::PerTensor, kMx = ScaleLayout::Mx, kNvfp4 = ScaleLayout::Nvfp4;
  CaseInput a{{3, 40}}, b{{2, 40}};
  return {
      {"to_format", {{{2, 3}}}, CASE(to_format(n[0], kE4M3)), Over::Float, kRule},
      {"to_format", {{{2, 3}, -900, 900}}, CASE(to_format(n[0], kE4M3, false)), Over::Float, kRule, 0, 16, "not saturating"},
      {"to_format", {{{2, 3}}}, CASE(to_format(n[0], custom_format(3, 0), true, Rounding::AwayFromZero)), Over::Float, kRule, 0, 16, "custom"},
      {"from_format", {{{2, 30}, 0, 256, Fill::Code}}, CASE(from_format(n[0], kE4M3)), Over::Fixed, kNone},
      {"from_format", {{{2, 3}}}, CASE(from_format(to_format(n[0], kE2M1), kE2M1, DType::BF16)), Over::Float, kRule, 0, 16, "values"},
      {"scaled_quant_tensor_scale", {a}, CASE(scaled_quant_tensor_scale(n[0])), Over::Float, kNone, 1},
      {"scaled_quant_scale", {a}, CASE(scaled_quant_scale(n[0], kE4M3, kTensor)), Over::Float, kNone, 1},
      {"scaled_quant_scale", {a}, CASE(scaled_quant_scale(n[0], kE4M3, kMx)), Over::Float, kNone, 0, 16, "mx"},
      {"scaled_quant_scale", {a}, CASE(scaled_quant_scale(n[0], kE2M1, kMx, MxRule::Floor)), Over::Float, kNone, 0, 16, "mx floor"},
      {"scaled_quant_scale", {{{2, 20}, 0, 100, Fill::Code}}, CASE(scaled(from_format(n[0], kE4M3), kE2M1, kNvfp4).scale), Over::Fixed, kNone, 0, 16, "nvfp4"},
      {"scaled_quantize", {{{2, 40}, 0, 100, Fill::Code}}, CASE(scaled(from_format(n[0], kE4M3), kE4M3, kTensor).codes), Over::Fixed, kNone},
      {"scaled_quantize", {a}, CASE(scaled(n[0], kE4M3, kMx).codes), Over::Float, kRule, 0, 16, "mx"},
      {"scaled_quantize", {{{2, 20}, 0, 100, Fill::Code}}, CASE(scaled(from_format(n[0], kE4M3), kE2M1, kNvfp4).codes), Over::Fixed, kNone, 0, 16, "nvfp4"},
      {"scaled_dequantize", {{{2, 40}, 0, 100, Fill::Code}}, CASE(scaled_value(from_format(n[0], kE4M3), kE4M3, kTensor)), Over::Fixed, kNone},
      {"scaled_dequantize", {a}, CASE(scaled_value(n[0], Format::F6E3M2, kMx)), Over::Float, kRule, 1, 16, "mx"},
      {"scaled_dequantize", {{{2, 20}, 0, 100, Fill::Code}}, CASE(scaled_value(from_format(n[0], kE4M3), kE2M1, kNvfp4)), Over::Fixed, kNone, 0, 16, "nvfp4"},
      {"scaled_matmul", {a, b}, CASE(scaled_product(n[0], n[1], kE4M3, kMx)), Over::Float, kRule, 8},
      {"scaled_matmul", {{{3, 40}, 0, 100, Fill::Code}, {{2, 40}, 0, 200, Fill::Code}}, CASE(scaled_product(from_format(n[0], kE4M3), from_format(n[1], kE4M3), kE4M3, kTensor)), Over::Fixed, kNone, 0, 16, "per tensor"},
      {"scaled_matmul", {{{2, 3, 40}, 0, 100, Fill::Code}, {{2, 2, 40}, 0, 200, Fill::Code}}, CASE(scaled_product(from_format(n[0], kE4M3), from_format(n[1], kE4M3), kE2M1, kNvfp4)), Over::Fixed, kNone, 0, 16, "nvfp4, batched"},
      {"scaled_matmul", {a, b, {{2}}}, CASE(scaled_product(n[0], n[1], kE4M3, kMx, n[2], true)), Over::Float, kRule, 8, 16, "bias, quantised gradient"},
  };
}

Array fill(const CaseInput& input, DType dtype, std::uint64_t stream) {
  std::vector<double> values = numbers(input, stream);
  bool whole = input.fill == Fill::Index || input.fill == Fill::Seed || input.fill == Fill::Code;
  if (whole) dtype = input.fill == Fill::Code ? DType::U8 : DType::I64;
  if (input.fill == Fill::Bool) dtype = DType::Bool;
  double low = is_unsigned_int(dtype) && input.fill != Fill::Distinct ? std::max(input.low, 0.0) : input.low;
  for (std::size_t i = 0; i < values.size(); ++i) {
    double& v = values[i];
    if (dtype == DType::Bool) v = v >= 0.5;
    else if (input.fill == Fill::Distinct && is_int(dtype)) v = std::round(v * double(values.size()));  // still distinct
    else v = low + v * (input.high - low);
    if (whole) v = std::floor(v);
    else if (is_int(dtype)) v = std::round(v);
  }
  return Array(values, input.shape).cast(dtype);
}

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const Rows rows = [] {
    Rows out;
    for (auto& family : {elementwise(), composed(), reductions(), movement(), index(), random(), pools(), contractions(), networks(), quantization()})
      out.insert(out.end(), family.begin(), family.end());
    return out;
  }();
  return rows;
}

std::vector<DType> case_dtypes(const OpCase& c) {
  using enum DType;
  std::vector<DType> floats{F64, F32, F16, BF16}, ints{I64, I32, I16, I8, U64, U32, U16, U8}, out;
  out.reserve(kAllDTypes.size());
  auto add = [&](const std::vector<DType>& more) { out.insert(out.end(), more.begin(), more.end()); };
  if (c.over == Over::Float || c.over == Over::Number || c.over == Over::All) add(floats);
  if (c.over != Over::Float && c.over != Over::Bool && c.over != Over::Fixed) add(ints);
  if (c.over == Over::IntBool || c.over == Over::Bool || c.over == Over::All) out.push_back(Bool);
  if (c.over == Over::Fixed) out.push_back(F32);
  return out;
}

std::vector<Array> case_values(const OpCase& c, DType dtype) {
  std::vector<Array> out;
  for (auto& input : c.inputs) out.push_back(fill(input, dtype, out.size()));
  return out;
}

Graph case_graph(const OpCase& c, DType dtype) {
  Graph graph;
  Nodes in;
  for (auto& value : case_values(c, dtype)) in.push_back(graph.input("x" + std::to_string(in.size()), value.type()));
  graph.set_outputs({c.build(in, graph)});
  return graph;
}

Feeds case_feeds(const std::vector<Array>& values) {
  Feeds out;
  for (auto& v : values) out.emplace("x" + std::to_string(out.size()), v);
  return out;
}

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::F64: return 0x1p-52;
    case DType::F32: return 0x1p-23;
    case DType::F16: return 0x1p-10;
    case DType::BF16: return 0x1p-7;
    default: return 0;
  }
}

}  // namespace rlx
