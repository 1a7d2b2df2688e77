// The product with a weight that is put together from the entries of a codebook.
#include <fmt/format.h>

#include "ops/eval.h"
#include "ops/nn.h"
#include "ops/rules.h"

namespace rlx {

Node reconstruct(Node indices, Node codebook) {
  auto fail = [&](std::string_view why) {
    throw UserError(fmt::format("[reconstruct] {}: got indices {} and codebook {}", why, to_string(indices.type()),
                                to_string(codebook.type())));
  };
  if (indices.dtype() != DType::U8 || indices.rank() != 2) fail("the indices must be u8 [n, k / entry_dim]");
  if (codebook.rank() != 2) fail("the codebook must be [num_entries, entry_dim]");
  return reshape(gather(codebook, indices, 0), {indices.dim(0), indices.dim(1) * codebook.dim(1)});
}

namespace {

void check_synth_matmul(Node x, Node indices, Node codebook, const CodebookAttrs& attrs) {
  if (attrs.entry_dim < 1) throw UserError(fmt::format("entry_dim is {}, expected 1 or more", attrs.entry_dim));
  if (attrs.num_entries < 1 || attrs.num_entries > 256)
    throw UserError(fmt::format("num_entries is {}, expected 1 to 256: an index is one byte", attrs.num_entries));
  if (!is_float(x.dtype()) || x.rank() < 1)
    throw UserError(fmt::format("x must be floats [..., k], got {}", to_string(x.type())));
  if (indices.dtype() != DType::U8 || indices.rank() != 2)
    throw UserError(fmt::format("indices must be u8 [n, k / entry_dim], got {}", to_string(indices.type())));
  if (!is_float(codebook.dtype()) || codebook.shape() != Shape{attrs.num_entries, attrs.entry_dim})
    throw UserError(fmt::format("codebook must be floats [num_entries, entry_dim] = [{},{}], got {}", attrs.num_entries,
                                attrs.entry_dim, to_string(codebook.type())));
  Dim k = x.dim(-1);
  if (k.is_number() && k.number() % attrs.entry_dim != 0)
    throw UserError(fmt::format("entry_dim {} does not divide k = {}, the last axis of x {}", attrs.entry_dim,
                                k.number(), to_string(x.shape())));
  if (indices.dim(1) * attrs.entry_dim != k)
    throw UserError(
        fmt::format("indices {} times entry_dim {} reach over {} elements of a row, expected k = {} (x is {})",
                    to_string(indices.shape()), attrs.entry_dim, (indices.dim(1) * attrs.entry_dim).text(), k.text(),
                    to_string(x.shape())));
}

// What everything is computed in.
DType compute_dtype(Node x, Node codebook) { return promote(widen(x).dtype(), widen(codebook).dtype()); }

// All axes but the last as one.
Node rows_of(Node x) {
  Shape leading(x.shape().begin(), x.shape().end() - 1);
  return x.rank() == 2 ? x : reshape(x, {count(leading), x.dim(-1)});
}

Node synth_matmul_body(Node x, Node indices, Node codebook, const CodebookAttrs& attrs) {
  check_synth_matmul(x, indices, codebook, attrs);
  DType wide = compute_dtype(x, codebook);
  Node weight = reconstruct(indices, to_dtype(codebook, wide));
  return to_dtype(matmul(to_dtype(x, wide), swap_last(weight), DType::Any), x.dtype());
}

// The weight's gradient is made whole and then added up by index, in the order of the indices.
Nodes synth_matmul_grad(const GradArgs& g) {
  DType wide = compute_dtype(g.a, g.c);
  Node dy = to_dtype(g.dy, wide), x = to_dtype(g.a, wide), codebook = to_dtype(g.c, wide);
  Node dx = matmul(dy, reconstruct(g.b, codebook), DType::Any);
  Node to_weight = matmul(swap_last(rows_of(dy)), rows_of(x), DType::Any);
  Node updates = reshape(to_weight, {g.b.dim(0), g.b.dim(1), codebook.dim(1)});
  Node to_codebook = scatter(full_like(codebook, 0), g.b, updates, 0, ScatterMode::Add);
  return {to_dtype(dx, g.a.dtype()), none, to_dtype(to_codebook, g.c.dtype())};
}

// The body by itself would call the index one of a gather.
Array eval_synth_matmul(const EvalArgs& e) {
  auto indices = e.in[1].values<std::uint8_t>();
  std::int64_t entries = e.attrs.as<CodebookAttrs>().num_entries, columns = e.in[1].shape()[1];
  for (std::size_t i = 0; i < indices.size(); ++i)
    if (indices[i] >= entries)
      throw UserError(fmt::format("codebook index {} at [{},{}] is out of range [0, {})", indices[i],
                                  std::int64_t(i) / columns, std::int64_t(i) % columns, entries));
  OpDef by_its_body = e.op;
  by_its_body.eval = {};
  return evaluate_op({e.in, e.attrs, e.dtype, e.shape, e.symbols, by_its_body});
}

}  // namespace

constexpr OpDef synth_matmul_rules = {
    .body = [](Node x, Node indices, Node codebook,
               const CodebookAttrs& attrs) { return synth_matmul_body(x, indices, codebook, attrs); },
    .eval = eval_synth_matmul,
    .grad = synth_matmul_grad,
};

#define CODEBOOK(...) DEFINE_OP(Composite, __VA_ARGS__)
#include "ops/ops.def"

}  // namespace rlx
