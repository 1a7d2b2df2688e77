// Elementwise ops and composites of one expression, whose row in ops.def is all there is to them.
#include "ops/define.h"

namespace rlx {
using namespace scalar;

// What leaves f16's range or loses its digits: as PyTorch's autocast has it.
constexpr AmpClass amp_of(std::string_view op) {
  for (std::string_view name : {"exp", "exp2", "expm1", "log", "log2", "log1p", "rsqrt", "tan", "asin", "acos", "sinh",
                                "cosh", "pow", "reciprocal", "square", "relu2", "softplus", "logaddexp"})
    if (op == name) return AmpClass::Reduction;
  return op == "stop_gradient" ? AmpClass::Movement : AmpClass::Elementwise;
}

#define UNARY(id, types, text, to_x, error, sentence)                                          \
  static Nodes grad_##id(const GradArgs& args) GRAD_BODY(to_x)                                 \
  constexpr OpDef id##_rules = {.dtypes = DTypes::types,                                       \
                                .ulp = error,                                                  \
                                .amp = amp_of(#id),                                            \
                                .formula = formula<1, DTypes::types>([](auto x) { return text; }), \
                                .grad = grad_##id,                                             \
                                .formula_text = #text,                                         \
                                .grad_text = #to_x};                                           \
  DEFINE_OP(Elementwise, id, (Node x), ({x}), NoAttrs, (), sentence)
#define BINARY(id, types, commutes, text, to_a, to_b, error, sentence)                                 \
  static Nodes grad_##id(const GradArgs& args) GRAD_BODY(to_a, to_b)                                   \
  constexpr OpDef id##_rules = {.dtypes = DTypes::types,                                               \
                                .commutative = commutes,                                               \
                                .ulp = error,                                                          \
                                .amp = amp_of(#id),                                                    \
                                .formula = formula<2, DTypes::types>([](auto a, auto b) { return text; }), \
                                .grad = grad_##id,                                                     \
                                .formula_text = #text,                                                 \
                                .grad_text = #to_a "; " #to_b};                                        \
  DEFINE_OP(Elementwise, id, (Node a, Node b), ({a, b}), NoAttrs, (), sentence)
#define COMPOSED(id, params, inputs, text, gradient, sentence)                                                      \
  constexpr OpDef id##_rules = {                                                                                    \
      .amp = amp_of(#id),                                                                                           \
      .body = [] params { return text; }, .grad = gradient, .formula_text = #text, .grad_text = #gradient};         \
  DEFINE_OP(Composite, id, params, inputs, NoAttrs, (), sentence)

constexpr OpDef where_rules = {
    .dtypes = DTypes::Select,
    .formula = formula<3, DTypes::Select>([](auto c, auto a, auto b) { return select(c, a, b); }),
    .grad = GRAD(none, where(a, dy, 0), where(a, 0, dy)),
};

constexpr OpDef cast_rules = {
    .amp = AmpClass::Boundary,
    .infer = [](const TypeArgs& t) -> Type {
      DType to = t.attrs.as<CastAttrs>().dtype;
      if (to == DType::Any) throw UserError("needs a dtype to cast to, got any");
      if (t.in[0].dtype == DType::C64 && to != DType::C64 && to != DType::Bool)
        throw UserError("a cast of c64 to " + std::string(to_string(to)) + " would drop the imaginary part");
      return {to, t.in[0].shape};
    },
    .formula = formula<1, DTypes::Any>([](auto x) { return x; }),
    .grad = GRAD(is_float(x.dtype()) ? cast(dy, x.dtype()) : none),
};

#define POINTWISE(...) DEFINE_OP(Elementwise, __VA_ARGS__)
#include "ops/ops.def"

}  // namespace rlx
