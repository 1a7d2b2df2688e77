// Composites whose meaning takes more than one expression.
#include "ops/define.h"

namespace rlx {

std::span<const std::string_view> enum_names(Activation) {
  static constexpr std::string_view kNames[] = {"relu", "sigmoid", "tanh", "silu", "gelu", "gelu_tanh", "exp", "log", "sqrt", "rsqrt",
                                                "neg", "abs", "sin", "cos", "tan", "atan", "round", "floor", "ceil"};
  return kNames;
}

// d kind(x) / dx.
static Node derivative(Activation kind, Node x) {
  switch (kind) {
    case Activation::Relu: return where(x > 0, expand(x.graph().constant(1, x.dtype()), x.shape()), 0);
    case Activation::Sigmoid: { Node s = sigmoid(x); return s * (1 - s); }
    case Activation::Tanh: { Node t = tanh(x); return 1 - t * t; }
    case Activation::Silu: { Node s = sigmoid(x); return s * (1 + x * (1 - s)); }
    case Activation::Gelu:  // Φ(x) + x φ(x)
      return 0.5 * (1 + erf(x * 0.7071067811865476)) + x * (0.3989422804014327 * exp(-0.5 * x * x));
    case Activation::GeluTanh: {
      Node t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * (0.7978845608028654 * (1 + 3 * 0.044715 * x * x));
    }
    case Activation::Exp: return exp(x);
    case Activation::Log: return 1 / x;
    case Activation::Sqrt: return where(x > 0, 0.5 * rsqrt(x), 0);
    case Activation::Rsqrt: return where(x > 0, -0.5 * rsqrt(x) / x, 0);
    case Activation::Abs: return sign(x);
    case Activation::Sin: return cos(x);
    case Activation::Cos: return -sin(x);
    case Activation::Tan: { Node t = tan(x); return 1 + t * t; }
    case Activation::Atan: return 1 / (1 + x * x);
    case Activation::Neg: return expand(x.graph().constant(-1, x.dtype()), x.shape());
    case Activation::Round:
    case Activation::Floor:
    case Activation::Ceil: return expand(x.graph().constant(1, x.dtype()), x.shape());
  }
  throw InternalError("unknown activation");
}

constexpr OpDef activation_backward_rules = {
    .amp = AmpClass::Elementwise,
    .body = [](Node x, Node dy, const ActivationAttrs& attrs) {
      if (attrs.kind == Activation::Relu) return relu_backward(x, dy);
      return dy * derivative(attrs.kind, x);
    },
    .grad = by_body,
};

#define COMPOSITE(...) DEFINE_OP(Composite, __VA_ARGS__)
#include "ops/ops.def"

}  // namespace rlx
