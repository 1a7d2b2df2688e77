// The attributes of the built-in ops.
#pragma once
#include "rlx/attrs.h"

namespace rlx {

#define RLX_FIELDS(...) \
  static constexpr void fields([[maybe_unused]] auto& self, [[maybe_unused]] auto&& f) { __VA_ARGS__; }

struct AxisAttrs {
  int axis = -1;
  RLX_FIELDS(f("axis", self.axis))
};
/// Reductions: over `axes`; the reduced axes stay as size 1 where keepdims.
struct ReduceAttrs {
  Axes axes;
  bool keepdims = false;
  RLX_FIELDS(f("axes", self.axes), f("keepdims", self.keepdims))
};
struct ArgAttrs {
  int axis = -1;
  bool keepdims = false;
  RLX_FIELDS(f("axis", self.axis), f("keepdims", self.keepdims))
};
struct CumulativeAttrs {
  int axis = -1;
  bool exclusive = false;  // the sum before the element
  bool reverse = false;    // from the end
  RLX_FIELDS(f("axis", self.axis), f("exclusive", self.exclusive), f("reverse", self.reverse))
};
struct CastAttrs {
  DType dtype = DType::F32;
  RLX_FIELDS(f("dtype", self.dtype))
};
struct ShapeAttrs {
  Shape shape;
  RLX_FIELDS(f("shape", self.shape))
};
struct PermAttrs {
  Axes perm;
  RLX_FIELDS(f("perm", self.perm))
};
/// One entry an axis: from start (counted from 0, inside the axis), `size` elements, every step-th (negative: backwards).
struct SliceAttrs {
  Shape starts, sizes;
  Extents steps;
  RLX_FIELDS(f("starts", self.starts), f("sizes", self.sizes), f("steps", self.steps))
};
struct PadAttrs {
  Shape low, high;  // elements added before and after each axis
  double value = 0;
  RLX_FIELDS(f("low", self.low), f("high", self.high), f("value", self.value))
};
struct AxesAttrs {
  Axes axes;
  RLX_FIELDS(f("axes", self.axes))
};
struct IotaAttrs {
  Shape shape;
  int axis = 0;
  DType dtype = DType::I64;
  RLX_FIELDS(f("shape", self.shape), f("axis", self.axis), f("dtype", self.dtype))
};

// ---- Index

struct GatherElementsAttrs {
  int axis = -1;
  bool wrap = true;  // negative indices count from the end; else they are out of range
  RLX_FIELDS(f("axis", self.axis), f("wrap", self.wrap))
};
/// What a scatter does where it writes.
enum class ScatterMode : std::uint8_t { Set, Add };
std::span<const std::string_view> enum_names(ScatterMode);
struct ScatterAttrs {
  int axis = 0;
  ScatterMode mode = ScatterMode::Set;
  RLX_FIELDS(f("axis", self.axis), f("mode", self.mode))
};

struct SortAttrs {
  int axis = -1;
  bool descending = false;
  RLX_FIELDS(f("axis", self.axis), f("descending", self.descending))
};
struct OneHotAttrs {
  Dim depth = 0;
  DType dtype = DType::F32;
  RLX_FIELDS(f("depth", self.depth), f("dtype", self.dtype))
};

// ---- Random

struct UniformAttrs {
  Shape shape;
  double low = 0, high = 1;
  DType dtype = DType::F32;
  std::int64_t stream = 0;
  RLX_FIELDS(f("shape", self.shape), f("low", self.low), f("high", self.high), f("dtype", self.dtype), f("stream", self.stream))
};
struct NormalAttrs {
  Shape shape;
  double mean = 0, std = 1;
  DType dtype = DType::F32;
  std::int64_t stream = 0;
  RLX_FIELDS(f("shape", self.shape), f("mean", self.mean), f("std", self.std), f("dtype", self.dtype), f("stream", self.stream))
};
struct BernoulliAttrs {
  Shape shape;
  double p = 0.5;
  std::int64_t stream = 0;
  RLX_FIELDS(f("shape", self.shape), f("p", self.p), f("stream", self.stream))
};

// ---- Pools

/// One entry an axis after N and C. Empty strides and dilation stand for ones, empty low and high (padding) for zeros.
/// In ceil_mode a last window may reach past the end, but not start there.
struct PoolAttrs {
  Extents kernel = {}, strides = {}, low = {}, high = {}, dilation = {};
  bool ceil_mode = false;
  bool count_include_pad = false;  // of avg_pool: the divisor counts padding, though not what lies past it
  RLX_FIELDS(f("kernel", self.kernel), f("strides", self.strides), f("low", self.low), f("high", self.high),
             f("dilation", self.dilation), f("ceil_mode", self.ceil_mode), f("count_include_pad", self.count_include_pad))
};
struct AvgPoolBackwardAttrs {
  Shape shape = {};  // of avg_pool's input
  Extents kernel = {}, strides = {}, low = {}, high = {}, dilation = {};
  bool ceil_mode = false, count_include_pad = false;
  RLX_FIELDS(f("shape", self.shape), f("kernel", self.kernel), f("strides", self.strides), f("low", self.low), f("high", self.high),
             f("dilation", self.dilation), f("ceil_mode", self.ceil_mode), f("count_include_pad", self.count_include_pad))
};

// ---- Composites

/// The functions whose derivative `activation_backward` knows.
enum class Activation : std::uint8_t {
  Relu, Sigmoid, Tanh, Silu, Gelu, GeluTanh, Exp, Log, Sqrt, Rsqrt, Neg, Abs, Sin, Cos, Tan, Atan, Round, Floor, Ceil
};
std::span<const std::string_view> enum_names(Activation);
struct ActivationAttrs {
  Activation kind = Activation::Relu;
  RLX_FIELDS(f("kind", self.kind))
};

// ---- contractions

struct MatmulAttrs {
  DType dtype = DType::Any;  // of the result; any: the promoted one
  RLX_FIELDS(f("dtype", self.dtype))
};
struct DotGeneralAttrs {
  Axes lhs_batch, rhs_batch, lhs_contract, rhs_contract;
  RLX_FIELDS(f("lhs_batch", self.lhs_batch), f("rhs_batch", self.rhs_batch), f("lhs_contract", self.lhs_contract),
             f("rhs_contract", self.rhs_contract))
};
/// One entry a spatial axis. An empty list stands for ones (strides, dilation) or zeros (padding).
struct ConvAttrs {
  Extents strides = {}, low = {}, high = {}, dilation = {};  // padding before and after
  int groups = 1;
  RLX_FIELDS(f("strides", self.strides), f("low", self.low), f("high", self.high), f("dilation", self.dilation), f("groups", self.groups))
};
/// The convolution whose gradient it is, and the spatial sizes of the result.
struct ConvBackwardAttrs {
  Extents strides = {}, low = {}, high = {}, dilation = {};
  int groups = 1;
  Shape size = {};
  RLX_FIELDS(f("strides", self.strides), f("low", self.low), f("high", self.high), f("dilation", self.dilation), f("groups", self.groups),
             f("size", self.size))
};
struct ConvTransposeAttrs {
  Extents strides = {}, low = {}, high = {}, dilation = {};
  Extents output_padding = {};  // added to the size of the result, at its end
  int groups = 1;
  RLX_FIELDS(f("strides", self.strides), f("low", self.low), f("high", self.high), f("dilation", self.dilation),
             f("output_padding", self.output_padding), f("groups", self.groups))
};

// ---- number formats

struct ToFormatAttrs {
  Format format = Format::F8E4M3;
  bool saturate = true;  // what is too large becomes the largest value, not infinity or NaN
  Rounding rounding = Rounding::NearestEven;
  RLX_FIELDS(f("format", self.format), f("saturate", self.saturate), f("rounding", self.rounding))
};
struct FromFormatAttrs {
  Format format = Format::F8E4M3;
  DType dtype = DType::F32;
  RLX_FIELDS(f("format", self.format), f("dtype", self.dtype))
};
/// What shares a scale: the whole tensor (an f32 [1]); 32 elements of the last axis (MX, a power of two as e8m0); 16 (NVFP4,
/// an f8e4m3 scale, beside an f32 scale of the tensor). The last block of a row may be short.
enum class ScaleLayout : std::uint8_t { PerTensor, Mx, Nvfp4 };
std::span<const std::string_view> enum_names(ScaleLayout);
/// Elements under one scale along the last axis; 0 where one scale is for all.
constexpr int block_size(ScaleLayout layout) {
  return layout == ScaleLayout::PerTensor ? 0 : layout == ScaleLayout::Mx ? 32 : 16;
}
/// How an MX scale follows from a block's largest magnitude: 2^ceil(log2(amax / max)), so that nothing saturates, or OCP's
/// 2^(floor(log2(amax)) - the format's greatest exponent).
enum class MxRule : std::uint8_t { Ceil, Floor };
std::span<const std::string_view> enum_names(MxRule);
struct ScaledQuantAttrs {
  Format format = Format::F8E4M3;
  ScaleLayout layout = ScaleLayout::PerTensor;
  RLX_FIELDS(f("format", self.format), f("layout", self.layout))
};
struct ScaledQuantScaleAttrs {
  Format format = Format::F8E4M3;
  ScaleLayout layout = ScaleLayout::PerTensor;
  MxRule rule = MxRule::Ceil;
  RLX_FIELDS(f("format", self.format), f("layout", self.layout), f("rule", self.rule))
};
struct ScaledDequantizeAttrs {
  Format format = Format::F8E4M3;
  ScaleLayout layout = ScaleLayout::PerTensor;
  DType dtype = DType::F32;
  RLX_FIELDS(f("format", self.format), f("layout", self.layout), f("dtype", self.dtype))
};
struct ScaledMatmulAttrs {
  Format lhs_format = Format::F8E4M3, rhs_format = Format::F8E4M3;
  ScaleLayout scale_layout = ScaleLayout::PerTensor;
  bool has_bias = false;
  bool quantize_gradient = false;               // the products of the gradient take its cotangent in a format of its own
  Format gradient_format = Format::F8E5M2;
  RLX_FIELDS(f("lhs_format", self.lhs_format), f("rhs_format", self.rhs_format), f("scale_layout", self.scale_layout),
             f("has_bias", self.has_bias), f("quantize_gradient", self.quantize_gradient), f("gradient_format", self.gradient_format))
};

// ---- composites of neural networks

struct EpsAttrs {
  double eps = 1e-5;
  RLX_FIELDS(f("eps", self.eps))
};
struct AxisKeepAttrs {
  int axis = -1;
  bool keepdims = false;
  RLX_FIELDS(f("axis", self.axis), f("keepdims", self.keepdims))
};
struct LayerNormAttrs {
  int axis = -1;  // the first of the axes that are normalised; they reach to the last
  double eps = 1e-5;
  RLX_FIELDS(f("axis", self.axis), f("eps", self.eps))
};
struct GroupNormAttrs {
  int groups = 1;
  double eps = 1e-5;
  RLX_FIELDS(f("groups", self.groups), f("eps", self.eps))
};
struct BatchNormAttrs {
  int channel_axis = 1;
  double eps = 1e-5;
  RLX_FIELDS(f("channel_axis", self.channel_axis), f("eps", self.eps))
};
struct ChannelAttrs {
  int channel_axis = 1;
  RLX_FIELDS(f("channel_axis", self.channel_axis))
};

enum class Reduction : std::uint8_t { Mean, Sum, None };
std::span<const std::string_view> enum_names(Reduction);
struct CrossEntropyAttrs {
  Reduction reduction = Reduction::Mean;  // the mean is over the labels that are not ignored
  std::int64_t ignore_index = -100;       // a label that counts for nothing
  RLX_FIELDS(f("reduction", self.reduction), f("ignore_index", self.ignore_index))
};
struct RopeAttrs {
  double base = 10000;
  bool interleaved = false;  // the pairs are (0,1), (2,3), …; else (i, i + dims/2)
  int dims = 0;              // how many of the last axis are rotated; 0: all
  bool inverse = false;      // by the negative angle: what undoes it, and its gradient
  RLX_FIELDS(f("base", self.base), f("interleaved", self.interleaved), f("dims", self.dims), f("inverse", self.inverse))
};
/// Which keys a query sees: all; those at or before it; of these the last `window`, itself included; those where a bool
/// mask holds; all, with a bias added to the scores (-inf hides a key).
enum class AttentionMask : std::uint8_t { None, Causal, SlidingWindow, Custom, Bias };
std::span<const std::string_view> enum_names(AttentionMask);
struct AttentionAttrs {
  AttentionMask mask = AttentionMask::None;
  std::int64_t window = 0;
  double scale = 0;          // of the scores; 0: 1 / sqrt(the size of a head)
  double softcap = 0;        // scores become softcap · tanh(scores / softcap); 0: they stay
  bool has_lengths = false;  // whether key lengths are among the inputs; the builder sets it
  RLX_FIELDS(f("mask", self.mask), f("window", self.window), f("scale", self.scale), f("softcap", self.softcap),
             f("has_lengths", self.has_lengths))
};
/// A weight made of entries: num_entries vectors of entry_dim numbers.
struct CodebookAttrs {
  std::int64_t entry_dim = 2, num_entries = 256;
  RLX_FIELDS(f("entry_dim", self.entry_dim), f("num_entries", self.num_entries))
};

/// The shape that is left when `axes` are reduced.
Shape reduced_shape(const Shape& shape, const Axes& axes, bool keepdims);

}  // namespace rlx
