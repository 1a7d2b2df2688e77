// The builder functions, one an op; each makes a node of the graph its inputs are of and throws UserError that
// names the op, what it got and what it expected.
// Written from the op table by `rlx_table --header`; a test checks that it is current.
#pragma once
#include "rlx/op_attrs.h"
#include "rlx/op_def.h"

namespace rlx {

/// The negated input.
Node neg(Node x);
/// The magnitude. Its gradient is sign(x), 0 at 0.
Node abs(Node x);
/// -1, 0 or 1 by the sign; NaN stays.
Node sign(Node x);
/// e to the power x.
Node exp(Node x);
/// 2 to the power x.
Node exp2(Node x);
/// e to the power x, less 1, exact near 0.
Node expm1(Node x);
/// The natural logarithm.
Node log(Node x);
/// The logarithm to base 2.
Node log2(Node x);
/// The logarithm of 1 + x, exact near 0.
Node log1p(Node x);
/// The square root. Its gradient is 0 where x <= 0.
Node sqrt(Node x);
/// 1 over the square root. Its gradient is 0 where x <= 0.
Node rsqrt(Node x);
/// The sine.
Node sin(Node x);
/// The cosine.
Node cos(Node x);
/// The tangent.
Node tan(Node x);
/// The inverse sine.
Node asin(Node x);
/// The inverse cosine.
Node acos(Node x);
/// The inverse tangent.
Node atan(Node x);
/// The hyperbolic sine.
Node sinh(Node x);
/// The hyperbolic cosine.
Node cosh(Node x);
/// The hyperbolic tangent.
Node tanh(Node x);
/// The inverse hyperbolic sine.
Node asinh(Node x);
/// The inverse hyperbolic cosine.
Node acosh(Node x);
/// The inverse hyperbolic tangent.
Node atanh(Node x);
/// The error function.
Node erf(Node x);
/// 1 / (1 + e^-x).
Node sigmoid(Node x);
/// The nearest whole number, ties to even. Its gradient is straight-through.
Node round(Node x);
/// The whole number at or below. Its gradient is straight-through.
Node floor(Node x);
/// The whole number at or above. Its gradient is straight-through.
Node ceil(Node x);
/// The whole number towards 0. Its gradient is straight-through.
Node trunc(Node x);
/// The input; its gradient is exactly zero.
Node stop_gradient(Node x);
/// Whether it is NaN.
Node isnan(Node x);
/// Whether it is an infinity.
Node isinf(Node x);
/// Whether it is neither an infinity nor NaN.
Node isfinite(Node x);
/// Not x.
Node logical_not(Node x);
/// Every bit inverted.
Node bitwise_not(Node x);
/// The sum.
Node add(Node a, Node b);
/// The difference.
Node sub(Node a, Node b);
/// The product.
Node mul(Node a, Node b);
/// The quotient; of integers rounded towards 0, and 0 where b is 0.
Node div(Node a, Node b);
/// The quotient rounded down; of integers 0 where b is 0.
Node floor_div(Node a, Node b);
/// The remainder with the sign of b; of integers 0 where b is 0.
Node mod(Node a, Node b);
/// The remainder with the sign of a; of integers 0 where b is 0.
Node fmod(Node a, Node b);
/// a to the power b.
Node pow(Node a, Node b);
/// The angle of the point (b, a).
Node atan2(Node a, Node b);
/// The larger of two; NaN wins. Equal ones share the gradient.
Node maximum(Node a, Node b);
/// The smaller of two; NaN wins. Equal ones share the gradient.
Node minimum(Node a, Node b);
/// Whether a = b.
Node equal(Node a, Node b);
/// Whether a and b differ.
Node not_equal(Node a, Node b);
/// Whether a < b.
Node less(Node a, Node b);
/// Whether a <= b.
Node less_equal(Node a, Node b);
/// Whether a > b.
Node greater(Node a, Node b);
/// Whether a >= b.
Node greater_equal(Node a, Node b);
/// Whether both hold.
Node logical_and(Node a, Node b);
/// Whether one holds.
Node logical_or(Node a, Node b);
/// Whether just one holds.
Node logical_xor(Node a, Node b);
/// The bits set in both.
Node bitwise_and(Node a, Node b);
/// The bits set in one or both.
Node bitwise_or(Node a, Node b);
/// The bits set in just one.
Node bitwise_xor(Node a, Node b);
/// a · 2^b; 0 where b is not below the width.
Node left_shift(Node a, Node b);
/// a / 2^b rounded down.
Node right_shift(Node a, Node b);
/// x where positive, else 0; NaN stays.
Node relu(Node x);
/// dy where x > 0, else 0.
Node relu_backward(Node x, Node dy);
/// x moved into [low, high]; a NaN, also of a bound, gives NaN.
Node clamp(Node x, Node low, Node high);
/// 1 / x.
Node reciprocal(Node x);
/// x · x.
Node square(Node x);
/// The square of relu.
Node relu2(Node x);
/// x moved into [0, 6].
Node relu6(Node x);
/// x · sigmoid(x).
Node silu(Node x);
/// x·Φ(x), the exact erf form.
Node gelu(Node x);
/// The tanh form of gelu.
Node gelu_tanh(Node x);
/// log(1 + e^x).
Node softplus(Node x);
/// x · tanh(softplus(x)).
Node mish(Node x);
/// x / 6 + 1/2 moved into [0, 1].
Node hard_sigmoid(Node x);
/// x · hard_sigmoid(x).
Node hard_swish(Node x);
/// x / (1 + |x|).
Node softsign(Node x);
/// 1 - erf(x).
Node erfc(Node x);
/// log(e^a + e^b) of finite values.
Node logaddexp(Node a, Node b);
/// a where the condition holds, else b.
Node where(Node condition, Node a, Node b);
/// The input as another dtype. Into integers it rounds towards 0 and saturates, NaN gives 0.
Node cast(Node x, DType dtype);
/// dy times the derivative of the activation `kind` at x.
Node activation_backward(Node x, Node dy, Activation kind);
/// The sum over `axes`, accumulated in f64; of integers it wraps.
Node sum(Node x, Axes axes, bool keepdims = false);
/// The largest over `axes`; NaN wins, none gives -inf or the least integer. Equal ones share the gradient.
Node max(Node x, Axes axes, bool keepdims = false);
/// The smallest over `axes`; NaN wins, none gives inf or the greatest integer. Equal ones share the gradient.
Node min(Node x, Axes axes, bool keepdims = false);
/// The product over `axes`, accumulated in f64; of integers it wraps.
Node prod(Node x, Axes axes, bool keepdims = false);
/// Whether one over `axes` of bools or integers is not 0; of none false.
Node any(Node x, Axes axes, bool keepdims = false);
/// Whether no one over `axes` of bools or integers is 0; of none true.
Node all(Node x, Axes axes, bool keepdims = false);
/// Where along an axis the largest is, an i64: the first of equal ones; NaN counts as the largest.
Node argmax(Node x, int axis, bool keepdims = false);
/// Where along an axis the smallest is, an i64: the first of equal ones; NaN counts as the smallest.
Node argmin(Node x, int axis, bool keepdims = false);
/// The sums of the elements up to each one along an axis, without itself if `exclusive`, from the end if `reverse`.
Node cumsum(Node x, int axis, bool exclusive = false, bool reverse = false);
/// The products of the elements up to each one along an axis. Its gradient divides by nothing and takes size² memory along the axis.
Node cumprod(Node x, int axis, bool exclusive = false, bool reverse = false);
/// The mean over `axes` of a float (cast integers first); of nothing it is NaN.
Node mean(Node x, Axes axes, bool keepdims = false);
/// The same elements in another shape.
Node reshape(Node x, Shape shape);
/// Repeats axes of size 1, and new leading ones.
Node expand(Node x, Shape shape);
/// The axes in another order: axis d of the result is axis perm[d] of x.
Node transpose(Node x, Axes perm);
/// Of each axis `sizes` elements: the one at `starts` and every `steps`-th from there, backwards where negative.
Node slice(Node x, Shape starts, Shape sizes, Extents steps);
/// `low` elements of `value` before each axis and `high` after it.
Node pad(Node x, Shape low, Shape high, double value = 0);
/// Tensors of one dtype one after the other along an axis.
Node concat(Nodes xs, int axis);
/// The elements along `axes` in reverse order.
Node flip(Node x, Axes axes);
/// Each element's position along an axis: 0, 1, 2 and so on.
Node iota(Graph graph, Shape shape, int axis, DType dtype = DType::I64);
/// The slices of x at `indices` along an axis, which the axes of `indices` replace. Negative indices count from the end.
Node gather(Node x, Node indices, int axis);
/// x with the slices at `indices` along an axis set to `updates` (the last of equal indices stays) or added to, in order.
Node scatter(Node x, Node indices, Node updates, int axis, ScatterMode mode);
/// One element for each index: x[…, indices[…, i, …], …], where the other coordinates are the index's own. Negative indices count from the end where `wrap`, else they are out of range.
Node gather_elements(Node x, Node indices, int axis, bool wrap = true);
/// x with one element for each index set to that of `updates` or added to, in order. What of `updates` lies outside the shape of `indices` is not read.
Node scatter_elements(Node x, Node indices, Node updates, int axis, ScatterMode mode);
/// The places, as i64, of the elements along an axis in sorted order; equal ones keep their order, NaN counts as the largest.
Node argsort(Node x, int axis = -1, bool descending = false);
/// The elements along an axis in sorted order; NaN counts as the largest.
Node sort(Node x, int axis = -1, bool descending = false);
/// A new last axis of `depth`, 1 at the index and 0 elsewhere.
Node one_hot(Node indices, Dim depth, DType dtype = DType::F32);
/// The size of an axis, an i64.
Node size(Node x, int axis);
/// Even in [low, high), by steps of (high - low) / 2^24; rounding may reach `high` where they are not 0 and 1 or the dtype has 16 bits.
Node random_uniform(Node seed, Shape shape, double low = 0, double high = 1, DType dtype = DType::F32);
/// Normal numbers of that mean and standard deviation, by Box and Muller's method.
Node random_normal(Node seed, Shape shape, double mean = 0, double std = 1, DType dtype = DType::F32);
/// True with probability p, to 2^-24.
Node random_bernoulli(Node seed, Shape shape, double p);
/// The largest of each window; NaN wins. The first of equal ones gets the gradient.
Node max_pool(Node x, PoolAttrs pool);
/// Where the largest of each window is: its first place in the flattened axes after N and C, an i64.
Node max_pool_indices(Node x, PoolAttrs pool);
/// The mean of each window of floats, over the elements inside x, or with the padding where count_include_pad.
Node avg_pool(Node x, PoolAttrs pool);
/// The cotangent of avg_pool's input of that shape.
Node avg_pool_backward(Node dy, Shape shape, PoolAttrs pool);
/// NumPy's matmul: a vector is a row on the left and a column on the right, leading axes broadcast. Integers are exact; `dtype` is that of the result (any: the promoted one).
Node matmul(Node a, Node b, DType dtype = DType::Any);
/// Sums products over pairs of contract axes, for each position of the batch axes: the batch axes, then the rest of a, then the rest of b.
Node dot_general(Node a, Node b, Axes lhs_batch, Axes rhs_batch, Axes lhs_contract, Axes rhs_contract);
/// The convolution (without flipping) of x [N, C, spatial…] with w [O, C / groups, kernel…], over 1 to 3 spatial axes.
Node conv(Node x, Node w, ConvAttrs attrs = {});
/// The gradient of conv to its input, whose spatial sizes are `size`.
Node conv_backward_input(Node dy, Node w, ConvAttrs attrs, Shape size);
/// The gradient of conv to its weight, whose kernel sizes are `size`.
Node conv_backward_weight(Node x, Node dy, ConvAttrs attrs, Shape size);
/// The transposed convolution of x [N, I, spatial…] with w [I, O / groups, kernel…].
Node conv_transpose(Node x, Node w, ConvTransposeAttrs attrs = {});
/// e^x over its sum along an axis, shifted by the largest. A row of -inf gives NaN.
Node softmax(Node x, int axis = -1);
/// Softmax over the elements where a bool mask holds (none: all) and that are not -inf, 0 at the others. A row without any gives 0, and gradient 0.
Node masked_softmax(Node x, Node mask = none, int axis = -1);
/// The logarithm of softmax.
Node log_softmax(Node x, int axis = -1);
/// The logarithm of the sum of e^x along an axis; -inf for a row of -inf.
Node logsumexp(Node x, int axis = -1, bool keepdims = false);
/// (x - mean) / sqrt(variance + eps) over the axes from `axis` to the last, then times gamma and plus beta, each none or broadcast.
Node layer_norm(Node x, Node gamma = none, Node beta = none, int axis = -1, double eps = 1e-5);
/// x / sqrt(mean(x²) + eps) over the last axis, then times gamma, none or broadcast.
Node rms_norm(Node x, Node gamma = none, double eps = 1e-5);
/// x [N, C, …] normalised over each of `groups` groups of channels, then times gamma [C] and plus beta [C], each or none.
Node group_norm(Node x, Node gamma, Node beta, int groups, double eps = 1e-5);
/// (x - mean) · gamma / sqrt(var + eps) + beta, each [C] along the channel axis.
Node batch_norm_inference(Node x, Node gamma, Node beta, Node mean, Node var, int channel_axis = 1, double eps = 1e-5);
/// dy · gamma / sqrt(var + eps): the gradient of batch_norm_inference to x.
Node batch_norm_inference_backward_input(Node dy, Node gamma, Node var, int channel_axis, double eps);
/// The sum of dy · (x - mean) / sqrt(var + eps) over all but the channel axis: the gradient to gamma.
Node batch_norm_inference_backward_gamma(Node x, Node dy, Node mean, Node var, int channel_axis, double eps);
/// The sum of dy over all but the channel axis: the gradient to beta.
Node batch_norm_inference_backward_beta(Node dy, int channel_axis);
/// -log softmax(logits [..., classes]) at the integer labels [...], their mean, sum or each; in f32 for 16-bit logits. The label `ignore_index` counts for nothing (all ignored: 0); another outside [0, classes) is an error.
Node cross_entropy(Node logits, Node labels, Reduction reduction = Reduction::Mean, std::int64_t ignore_index = -100);
/// Rotary embedding of x [..., T, D] by integer positions [T] or [B, T]: pair i of the first `dims` (0: all) of D turns by position · base^(-2i/dims). The pairs are (i, i + dims/2), interleaved (2i, 2i + 1).
Node rope(Node x, Node positions, double base = 10000, bool interleaved = false, int dims = 0, bool inverse = false);
/// softmax(q·kᵀ·scale)·v of q [B, H, T, D], k [B, K, S, D], v [B, K, S, E], where H/K queries share a key head. `mask` is a bool mask or a bias that broadcasts to [B, H, T, S]; `lengths` [B] says how many keys there are, later ones are hidden. Causal: query i stands at key length - T + i. A query that sees no key gives 0, and gradient 0.
Node attention(Node q, Node k, Node v, AttentionAttrs attrs = {}, Node mask = none, Node lengths = none);
/// x [..., k] times the transposed weight [n, k] whose row j is codebook[indices[j, 0]], codebook[indices[j, 1]], … side by side: [..., n] of x's dtype. `indices` is u8 [n, k / entry_dim], `codebook` [num_entries, entry_dim], num_entries at most 256; an index from num_entries on is an error. The indices have no gradient.
Node synth_matmul(Node x, Node indices, Node codebook, CodebookAttrs attrs);
/// The code of each float in a number format. What is too large after rounding becomes the largest value, or infinity or NaN where it does not saturate and the format has them.
Node to_format(Node x, Format format, bool saturate = true, Rounding rounding = Rounding::NearestEven);
/// The value of each code of a number format.
Node from_format(Node codes, Format format, DType dtype = DType::F32);
/// The second-level scale of NVFP4, an f32 [1]: max |x| / 2688, and 1 where that is 0.
Node scaled_quant_tensor_scale(Node x);
/// The scales of x: per tensor an f32 [1], max |x| / the format's largest value (1 where that is 0); mx an e8m0 code for each 32 of the last axis, 255 where one is not finite; nvfp4 an f8e4m3 code for each 16, in units of the tensor scale.
Node scaled_quant_scale(Node x, Format format, ScaleLayout layout, MxRule rule = MxRule::Ceil, Node tensor_scale = none);
/// The code of each element of x / its scale, saturating.
Node scaled_quantize(Node x, Node scale, Format format, ScaleLayout layout, Node tensor_scale = none);
/// Code times scale. nvfp4 without a tensor scale gives what is left to multiply by it.
Node scaled_dequantize(Node codes, Node scale, Format format, ScaleLayout layout, Node tensor_scale = none, DType dtype = DType::F32);
/// lhs [..., m, k] · rhs [..., n, k]ᵀ of the values that codes and scales stand for, plus a bias [n], as f32. Its gradient is that of the product of these values; with `quantize_gradient` its cotangent is quantised for both products.
Node scaled_matmul(Node lhs, Node rhs, Node lhs_scale, Node rhs_scale, ScaledMatmulAttrs attrs = {}, Node lhs_tensor_scale = none, Node rhs_tensor_scale = none, Node bias = none);
/// A tensor of one value.
Node full(Graph graph, double value, Type type);
/// A tensor of one value, of x's dtype and shape.
Node full_like(Node x, double value);
/// x with its last two axes exchanged.
Node swap_last(Node x);
/// x without these axes of size 1.
Node squeeze(Node x, Axes axes);
/// x with new axes of size 1, which are `axes` of the result.
Node unsqueeze(Node x, Axes axes);
/// x[start:stop:step] along an axis, as NumPy takes it: negative numbers count from the end, what lies outside is cut off; INT64_MIN and INT64_MAX reach the ends. On a symbolic axis a negative number must lie inside.
Node slice_axis(Node x, int axis, Dim start, Dim stop, std::int64_t step = 1);
/// The parts of an axis of these sizes.
Nodes split(Node x, int axis, Shape sizes);
/// Tensors of one type along a new axis.
Node stack(Nodes xs, int axis);
/// The k largest or smallest along an axis, sorted, and their places: {values, indices}. The first of equal ones comes first.
Nodes top_k(Node x, Dim k, int axis = -1, bool largest = true);
/// The slices of x at the coordinates in the last axis of `indices`; the first `batch_dims` axes of both go together.
Node gather_nd(Node x, Node indices, int batch_dims = 0);
/// x with the slices at the coordinates in the last axis of `indices` set or added to.
Node scatter_nd(Node x, Node indices, Node updates, ScatterMode mode);
/// The weight [n, k] of synth_matmul: the entries at u8 `indices` [n, k / d] of a codebook [entries, d] side by side.
Node reconstruct(Node indices, Node codebook);

namespace ops {  // the rows: n.is(ops::matmul)
extern const OpDef neg;
extern const OpDef abs;
extern const OpDef sign;
extern const OpDef exp;
extern const OpDef exp2;
extern const OpDef expm1;
extern const OpDef log;
extern const OpDef log2;
extern const OpDef log1p;
extern const OpDef sqrt;
extern const OpDef rsqrt;
extern const OpDef sin;
extern const OpDef cos;
extern const OpDef tan;
extern const OpDef asin;
extern const OpDef acos;
extern const OpDef atan;
extern const OpDef sinh;
extern const OpDef cosh;
extern const OpDef tanh;
extern const OpDef asinh;
extern const OpDef acosh;
extern const OpDef atanh;
extern const OpDef erf;
extern const OpDef sigmoid;
extern const OpDef round;
extern const OpDef floor;
extern const OpDef ceil;
extern const OpDef trunc;
extern const OpDef stop_gradient;
extern const OpDef isnan;
extern const OpDef isinf;
extern const OpDef isfinite;
extern const OpDef logical_not;
extern const OpDef bitwise_not;
extern const OpDef add;
extern const OpDef sub;
extern const OpDef mul;
extern const OpDef div;
extern const OpDef floor_div;
extern const OpDef mod;
extern const OpDef fmod;
extern const OpDef pow;
extern const OpDef atan2;
extern const OpDef maximum;
extern const OpDef minimum;
extern const OpDef equal;
extern const OpDef not_equal;
extern const OpDef less;
extern const OpDef less_equal;
extern const OpDef greater;
extern const OpDef greater_equal;
extern const OpDef logical_and;
extern const OpDef logical_or;
extern const OpDef logical_xor;
extern const OpDef bitwise_and;
extern const OpDef bitwise_or;
extern const OpDef bitwise_xor;
extern const OpDef left_shift;
extern const OpDef right_shift;
extern const OpDef relu;
extern const OpDef relu_backward;
extern const OpDef clamp;
extern const OpDef reciprocal;
extern const OpDef square;
extern const OpDef relu2;
extern const OpDef relu6;
extern const OpDef silu;
extern const OpDef gelu;
extern const OpDef gelu_tanh;
extern const OpDef softplus;
extern const OpDef mish;
extern const OpDef hard_sigmoid;
extern const OpDef hard_swish;
extern const OpDef softsign;
extern const OpDef erfc;
extern const OpDef logaddexp;
extern const OpDef where;
extern const OpDef cast;
extern const OpDef activation_backward;
extern const OpDef sum;
extern const OpDef max;
extern const OpDef min;
extern const OpDef prod;
extern const OpDef any;
extern const OpDef all;
extern const OpDef argmax;
extern const OpDef argmin;
extern const OpDef cumsum;
extern const OpDef cumprod;
extern const OpDef mean;
extern const OpDef reshape;
extern const OpDef expand;
extern const OpDef transpose;
extern const OpDef slice;
extern const OpDef pad;
extern const OpDef concat;
extern const OpDef flip;
extern const OpDef iota;
extern const OpDef gather;
extern const OpDef scatter;
extern const OpDef gather_elements;
extern const OpDef scatter_elements;
extern const OpDef argsort;
extern const OpDef sort;
extern const OpDef one_hot;
extern const OpDef size;
extern const OpDef random_uniform;
extern const OpDef random_normal;
extern const OpDef random_bernoulli;
extern const OpDef max_pool;
extern const OpDef max_pool_indices;
extern const OpDef avg_pool;
extern const OpDef avg_pool_backward;
extern const OpDef matmul;
extern const OpDef dot_general;
extern const OpDef conv;
extern const OpDef conv_backward_input;
extern const OpDef conv_backward_weight;
extern const OpDef conv_transpose;
extern const OpDef softmax;
extern const OpDef masked_softmax;
extern const OpDef log_softmax;
extern const OpDef logsumexp;
extern const OpDef layer_norm;
extern const OpDef rms_norm;
extern const OpDef group_norm;
extern const OpDef batch_norm_inference;
extern const OpDef batch_norm_inference_backward_input;
extern const OpDef batch_norm_inference_backward_gamma;
extern const OpDef batch_norm_inference_backward_beta;
extern const OpDef cross_entropy;
extern const OpDef rope;
extern const OpDef attention;
extern const OpDef synth_matmul;
extern const OpDef to_format;
extern const OpDef from_format;
extern const OpDef scaled_quant_tensor_scale;
extern const OpDef scaled_quant_scale;
extern const OpDef scaled_quantize;
extern const OpDef scaled_dequantize;
extern const OpDef scaled_matmul;
}  // namespace ops

inline Node operator-(Node x) { return neg(x); }
inline Node operator+(Node a, Node b) { return add(a, b); }
inline Node operator-(Node a, Node b) { return sub(a, b); }
inline Node operator*(Node a, Node b) { return mul(a, b); }
inline Node operator/(Node a, Node b) { return div(a, b); }
inline Node operator>(Node a, Node b) { return greater(a, b); }
inline Node operator<(Node a, Node b) { return less(a, b); }
inline Node operator>=(Node a, Node b) { return greater_equal(a, b); }
inline Node operator<=(Node a, Node b) { return less_equal(a, b); }
inline Node operator==(Node a, Node b) { return equal(a, b); }
inline Node operator!=(Node a, Node b) { return not_equal(a, b); }
inline Node operator&(Node a, Node b) { return logical_and(a, b); }
inline Node operator|(Node a, Node b) { return logical_or(a, b); }

}  // namespace rlx
