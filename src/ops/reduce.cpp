// Reductions.
#include "ops/define.h"

namespace rlx {

// A reduced value back over the axes that were reduced.
static Node stretch(Node reduced, Node x, const Attrs& attrs) {
  auto& a = attrs.as<ReduceAttrs>();
  return expand(reshape(reduced, reduced_shape(x.shape(), a.axes, true)), x.shape());
}

constexpr OpDef sum_rules = {
    .formula = formula<2, DTypes::Number>([](auto a, auto b) { return a + b; }),
    .init = 0,
    .grad = GRAD(stretch(dy, x, attrs)),
};

#define REDUCE(...) DEFINE_OP(Reduce, __VA_ARGS__)
#include "ops/ops.def"

}  // namespace rlx
