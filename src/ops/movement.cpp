// Ops that move elements and compute nothing.
#include <fmt/format.h>

#include "ops/define.h"

namespace rlx {

constexpr OpDef reshape_rules = {
    .infer = [](const TypeArgs& t) -> Type {
      auto& shape = t.attrs.as<ShapeAttrs>().shape;
      if (!(count(shape) == count(t.in[0].shape)))
        throw UserError(fmt::format("element counts differ: got {} and {}", to_string(t.in[0].shape), to_string(shape)));
      return {t.in[0].dtype, shape};
    },
    .eval = [](const EvalArgs& e) { return e.in[0].reshaped(e.shape); },
    .grad = GRAD(reshape(dy, x.shape())),
};

constexpr OpDef expand_rules = {
    .infer = [](const TypeArgs& t) -> Type {
      auto& shape = t.attrs.as<ShapeAttrs>().shape;
      if (broadcast(t.in[0].shape, shape) != shape)
        throw UserError(fmt::format("cannot repeat {} to {}", to_string(t.in[0].shape), to_string(shape)));
      return {t.in[0].dtype, shape};
    },
    .source = [](Coords& from, const Coords& at, std::span<const Extents> in, const EvalArgs&) {
      from.assign(at.end() - std::ptrdiff_t(in[0].size()), at.end());
      for (std::size_t d = 0; d < from.size(); ++d)
        if (in[0][d] == 1) from[d] = 0;
    },
    .grad = GRAD(dy),  // the sweep sums over what was repeated
};

#define MOVEMENT(...) DEFINE_OP(Movement, __VA_ARGS__)
#include "ops/ops.def"

}  // namespace rlx
