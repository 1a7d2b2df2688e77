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
