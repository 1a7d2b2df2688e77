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

/// The shape that is left when `axes` are reduced.
Shape reduced_shape(const Shape& shape, const Axes& axes, bool keepdims);

}  // namespace rlx
