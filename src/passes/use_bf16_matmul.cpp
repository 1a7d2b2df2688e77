// A matmul of decoded number formats in bf16 with an f32 sum:
//
//     matmul(T(from_format(a)), T(from_format(b)))  ->  matmul(T(from_format(a, bf16)), T(from_format(b, bf16)), f32)
//
// and the same of scaled_dequantize without a tensor scale; T moves elements. A code has at most 7 significant bits, an
// f4e2m1 code times an f8e4m3 scale 6, so bf16 holds each value but those below 2^-126, which the product's sum takes
// as 0.
#include "ir/graph_data.h"
#include "ops/rules.h"
#include "passes/passes.h"
#include "rlx/op_attrs.h"

namespace rlx {
namespace {

// The operand in bf16, or none where that could round.
Node in_bf16(Node n) {
  if (n.dtype() != DType::F32) return none;
  if (n.is(ops::transpose) || n.is(ops::reshape) || n.is(ops::expand)) {
    Node moved = in_bf16(n.input(0));
    return moved ? make(n.op(), {moved}, n.attrs()) : none;
  }
  if (n.is(ops::from_format)) return from_format(n.input(0), n.attrs<FromFormatAttrs>().format, DType::BF16);
  if (!n.is(ops::scaled_dequantize) || n.inputs().size() > 2) return none;
  auto& attrs = n.attrs<ScaledDequantizeAttrs>();
  if (attrs.layout == ScaleLayout::PerTensor) return none;
  return scaled_dequantize(n.input(0), n.input(1), attrs.format, attrs.layout, none, DType::BF16);
}

}  // namespace

Rewritten use_bf16_matmul(const Graph& graph) {
  constexpr const char* kRule = "use_bf16_matmul";
  Fired fired;
  Rebuilt out = rebuild(graph, [&](Node copy, Node) -> Replaced {
    if (!copy.is(ops::matmul) || copy.dtype() != DType::F32) return {};
    Graph target = copy.graph();
    target.set_origin(origin_by(copy, kRule));
    Node a = in_bf16(copy.input(0)), b = a ? in_bf16(copy.input(1)) : none;
    Node made = b ? matmul(a, b, DType::F32) : none;
    target.set_origin("");
    if (!made) return {};
    ++fired[kRule];
    return {made, kRule};
  });
  return {fired.empty() ? graph : out.graph, std::move(fired)};
}

}  // namespace rlx
