// Number formats and the scaled matmul: FP8 per tensor, MX (OCP Microscaling Formats 1.0), NVFP4.
#include <fmt/format.h>

#include "ops/nn.h"
#include "ops/rules.h"

namespace rlx {

std::span<const std::string_view> enum_names(ScaleLayout) {
  static constexpr std::string_view kNames[] = {"per_tensor", "mx", "nvfp4"};
  return kNames;
}
std::span<const std::string_view> enum_names(MxRule) {
  static constexpr std::string_view kNames[] = {"ceil", "floor"};
  return kNames;
}

// Where the builders put their optional inputs.
static Nodes scaled_matmul_inputs(std::initializer_list<Node> inputs) {
  Nodes out;
  for (auto& n : inputs)
    if (n) out.push_back(n);
  return out;
}
static ScaledMatmulAttrs with_bias(ScaledMatmulAttrs attrs, Node bias) {
  attrs.has_bias = bool(bias);
  return attrs;
}

namespace {

constexpr Rounding kNearest = Rounding::NearestEven;
constexpr double kLeastScale = 0x1p-126, kGreatestScale = 0x1.fffffep127;
constexpr double kNvfp4Max = 6, kScaleMax = 448;  // of f4e2m1, and of its f8e4m3 scales

void check_codes(const char* what, const Type& type) {
  if (type.dtype != DType::U8) throw UserError(fmt::format("{} must be u8 codes, got {}", what, to_string(type)));
}

Array eval_to_format(const EvalArgs& e) {
  auto& attrs = e.attrs.as<ToFormatAttrs>();
  Array x = e.in[0].cast(DType::F64), out(DType::U8, e.shape);
  auto from = x.values<double>();
  auto to = out.values<std::uint8_t>();
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = encode(attrs.format, from[i], attrs.saturate, attrs.rounding);
  return out;
}

Array eval_from_format(const EvalArgs& e) {
  auto table = decode_table(e.attrs.as<FromFormatAttrs>().format);
  Array out(DType::F32, e.shape);
  auto from = e.in[0].values<std::uint8_t>();
  auto to = out.values<float>();
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = table[from[i]];
  return out.cast(e.dtype);
}

// ---------------------------------------------------------------------------------------------- blocks

void check_quant(Node x, Format format, ScaleLayout layout, bool has_tensor_scale) {
  if (!info(format).is_float() || format == Format::E8M0)
    throw UserError(fmt::format("{} is no float format", to_string(format)));
  if (layout != ScaleLayout::PerTensor && x.rank() == 0)
    throw UserError("blocks lie along the last axis, got a scalar");
  if (layout == ScaleLayout::Nvfp4 && format != Format::F4E2M1)
    throw UserError(fmt::format("nvfp4 holds f4e2m1 codes, not {}", to_string(format)));
  if (has_tensor_scale && layout != ScaleLayout::Nvfp4)
    throw UserError(fmt::format("only nvfp4 has a tensor scale, not {}", field_text(layout)));
}
void check_tensor_scale(Node scale) {
  if (scale.type() != Type{DType::F32, {1}})
    throw UserError(fmt::format("the tensor scale must be f32[1], got {}", to_string(scale.type())));
}

Shape scale_shape(const Shape& x, ScaleLayout layout) {
  if (layout == ScaleLayout::PerTensor) return {1};
  Shape out = x;
  out.back() = ceil_div(x.back(), block_size(layout));
  return out;
}
void check_scale(Node x, Node scale, ScaleLayout layout) {
  Type expected{layout == ScaleLayout::PerTensor ? DType::F32 : DType::U8, scale_shape(x.shape(), layout)};
  if (scale.type() != expected)
    throw UserError(fmt::format("the scale of {} in layout {} must be {}, got {}", to_string(x.type()),
                                field_text(layout), to_string(expected), to_string(scale.type())));
}

// The largest magnitude of each block, [..., blocks].
Node block_max(Node x, int block) {
  Shape padding(x.shape().size(), 0), split = x.shape();
  Dim blocks = ceil_div(x.dim(-1), block);
  padding.back() = blocks * block - x.dim(-1);
  split.back() = blocks;
  split.push_back(block);
  return max(reshape(pad(abs(x), Shape(padding.size(), 0), padding, 0), split), {-1}, false);
}
Node tensor_max(Node x) { return reshape(maximum(max(abs(x), all_axes(x.rank()), false), 0), {1}); }

// [..., blocks] as the scale of each element of a row of `columns`.
Node per_element(Node scale, int block, Dim columns) {
  Shape shape = scale.shape();
  shape.push_back(1);
  Node spread = reshape(scale, shape);
  shape.back() = block;
  spread = expand(spread, shape);
  shape.pop_back();
  shape.back() = scale.dim(-1) * block;
  return part_of_last(reshape(spread, shape), 0, columns);
}

Node finite_scale(Node scale) { return where(scale == 0, 1, minimum(maximum(scale, kLeastScale), kGreatestScale)); }

Node wide_input(Node x) {
  if (!is_float(x.dtype())) throw UserError(fmt::format("needs a float, got {}", to_string(x.type())));
  return as_dtype(x, DType::F32);
}

Node mx_scale(Node x, Format format, MxRule rule) {
  Node amax = block_max(x, 32);
  if (rule == MxRule::Ceil)
    return to_format(as_dtype(amax, DType::F64) / info(format).max, Format::E8M0, false, Rounding::AwayFromZero);
  Node code = to_format(amax, Format::E8M0, false, Rounding::TowardsZero);
  Node lower = cast(maximum(cast(code, DType::I32) - info(format).max_exponent(), 0), DType::U8);
  return where(code == 255, code, lower);
}

Node scale_body(Node x, Node tensor_scale, const ScaledQuantScaleAttrs& a) {
  check_quant(x, a.format, a.layout, bool(tensor_scale));
  x = wide_input(x);
  if (a.layout == ScaleLayout::PerTensor) return finite_scale(tensor_max(x) / info(a.format).max);
  if (a.layout == ScaleLayout::Mx) return mx_scale(x, a.format, a.rule);
  if (!tensor_scale) throw UserError("the scales of nvfp4 need its tensor scale");
  check_tensor_scale(tensor_scale);
  Node ratio = (block_max(x, 16) / kNvfp4Max) / tensor_scale;
  // A NaN is in the tensor scale already, and no scale is NaN.
  return to_format(where(isnan(ratio), kScaleMax, minimum(maximum(ratio, 0x1p-9), kScaleMax)), Format::F8E4M3, true,
                   kNearest);
}

// The scale of each element, or of all.
Node spread_scale(Node x, Node scale, Node tensor_scale, ScaleLayout layout) {
  check_scale(x, scale, layout);
  if (tensor_scale) check_tensor_scale(tensor_scale);
  if (layout == ScaleLayout::PerTensor) return scale;
  Node values = from_format(scale, layout == ScaleLayout::Mx ? Format::E8M0 : Format::F8E4M3, DType::F32);
  return per_element(values, block_size(layout), x.dim(-1));
}

Node quantize_body(Node x, Node scale, Node tensor_scale, const ScaledQuantAttrs& a) {
  check_quant(x, a.format, a.layout, bool(tensor_scale));
  if (a.layout == ScaleLayout::Nvfp4 && !tensor_scale) throw UserError("nvfp4 needs a tensor scale");
  Node s = spread_scale(x, scale, tensor_scale, a.layout);
  if (tensor_scale) s = s * tensor_scale;
  return to_format(wide_input(x) / s, a.format, true, kNearest);
}

Node dequantize_body(Node codes, Node scale, Node tensor_scale, const ScaledDequantizeAttrs& a) {
  check_codes("codes", codes.type());
  check_quant(codes, a.format, a.layout, bool(tensor_scale));
  Node value = from_format(codes, a.format, DType::F32) * spread_scale(codes, scale, tensor_scale, a.layout);
  if (tensor_scale) value = value * tensor_scale;
  return as_dtype(value, a.dtype);
}

// ---------------------------------------------------------------------------------------------- the product

struct Operand {
  Node codes, scale, tensor_scale;
  Format format;
};
struct ScaledProduct {
  Operand lhs, rhs;
  Node bias;
  const ScaledMatmulAttrs& attrs;
};

ScaledProduct scaled_product(std::span<const Node> in, const ScaledMatmulAttrs& a) {
  bool two_levels = a.scale_layout == ScaleLayout::Nvfp4;
  std::size_t expected = 4 + 2 * two_levels + a.has_bias;
  if (in.size() != expected)
    throw UserError(fmt::format("layout {} with{} a bias takes {} inputs, got {}", field_text(a.scale_layout),
                                a.has_bias ? "" : "out", expected, in.size()));
  return {{in[0], in[2], two_levels ? in[4] : none, a.lhs_format},
          {in[1], in[3], two_levels ? in[5] : none, a.rhs_format},
          a.has_bias ? in.back() : none,
          a};
}

void check_operands(const ScaledProduct& p) {
  Node l = p.lhs.codes, r = p.rhs.codes;
  check_codes("lhs", l.type());
  check_codes("rhs", r.type());
  if (l.rank() < 2 || r.rank() != l.rank())
    throw UserError(fmt::format("needs lhs [..., m, k] and rhs [..., n, k] of one rank, got {} and {}",
                                to_string(l.type()), to_string(r.type())));
  for (int d = 0; d < l.rank(); ++d)
    if (d != l.rank() - 2 && !(l.dim(d) == r.dim(d)))
      throw UserError(fmt::format("axis {} differs: got lhs {} and rhs {}, expected [..., m, k] and [..., n, k]", d,
                                  to_string(l.shape()), to_string(r.shape())));
  if (p.bias && (!is_float(p.bias.dtype()) || p.bias.shape() != Shape{r.dim(-2)}))
    throw UserError(fmt::format("the bias must be a float [{}], got {}", r.dim(-2).text(), to_string(p.bias.type())));
}

// Value = block_value · factor, where the factor is one number.
Node block_value(const Operand& o, ScaleLayout layout) {
  if (layout == ScaleLayout::PerTensor) return from_format(o.codes, o.format, DType::F32);
  return scaled_dequantize(o.codes, o.scale, o.format, layout, none, DType::F32);
}
Node times_factor(Node x, const Operand& o, ScaleLayout layout) {
  Node factor = layout == ScaleLayout::PerTensor ? o.scale : o.tensor_scale;
  return factor ? x * factor : x;
}

Node scaled_matmul_body(const BodyArgs& args) {
  ScaledProduct p = scaled_product(args.in, args.attrs.as<ScaledMatmulAttrs>());
  check_operands(p);
  ScaleLayout layout = p.attrs.scale_layout;
  for (auto* o : {&p.lhs, &p.rhs}) {
    check_quant(o->codes, o->format, layout, bool(o->tensor_scale));
    check_scale(o->codes, o->scale, layout);
    if (o->tensor_scale) check_tensor_scale(o->tensor_scale);
  }
  Node out = matmul(block_value(p.lhs, layout), swap_last(block_value(p.rhs, layout)), DType::Any);
  out = times_factor(times_factor(out, p.lhs, layout), p.rhs, layout);
  return p.bias ? out + as_dtype(p.bias, DType::F32) : out;
}

// The cotangent as one operand of a product: itself, or in the gradient's format with blocks along its last axis.
struct Cotangent {
  Node value;
  Operand quantized;  // where it is
};
Cotangent cotangent(Node dy, const ScaledMatmulAttrs& a) {
  if (!a.quantize_gradient) return {dy, {}};
  Format format = a.gradient_format;
  Node tensor_scale = a.scale_layout == ScaleLayout::Nvfp4 ? scaled_quant_tensor_scale(dy) : none;
  Node scale = scaled_quant_scale(dy, format, a.scale_layout, MxRule::Ceil, tensor_scale);
  Operand o{scaled_quantize(dy, scale, format, a.scale_layout, tensor_scale), scale, tensor_scale, format};
  return {block_value(o, a.scale_layout), o};
}
// cotangent · other, of values; with their factors.
Node gradient_product(const Cotangent& c, const Operand& other, ScaleLayout layout) {
  Node out = times_factor(matmul(c.value, block_value(other, layout), DType::Any), other, layout);
  return c.quantized.codes ? times_factor(out, c.quantized, layout) : out;
}

Nodes scaled_matmul_grad(const GradArgs& g) {
  auto& a = g.attrs.as<ScaledMatmulAttrs>();
  ScaledProduct p = scaled_product(g.in, a);
  Cotangent rows = cotangent(g.dy, a), columns = rows;
  if (a.quantize_gradient && a.scale_layout != ScaleLayout::PerTensor)
    columns = cotangent(swap_last(g.dy), a);
  else
    columns.value = swap_last(rows.value);
  Nodes out(g.in.size(), none);
  out[0] = gradient_product(rows, p.rhs, a.scale_layout);
  out[1] = gradient_product(columns, p.lhs, a.scale_layout);
  if (p.bias) {
    Axes others = all_axes(g.dy.rank() - 1);
    out.back() = sum(g.dy, others, false);
  }
  return out;
}

Node optional_input(std::span<const Node> in, std::size_t i) { return i < in.size() ? in[i] : none; }

}  // namespace

constexpr OpDef to_format_rules = {
    .codes = true,
    .infer = [](const TypeArgs& t) -> Type {
      if (!is_float(t.in[0].dtype)) throw UserError(fmt::format("needs a float, got {}", to_string(t.in[0])));
      return {DType::U8, t.in[0].shape};
    },
    .eval = eval_to_format,
    .grad = GRAD(dy),
};

constexpr OpDef from_format_rules = {
    .infer = [](const TypeArgs& t) -> Type {
      check_codes("the input", t.in[0]);
      DType dtype = t.attrs.as<FromFormatAttrs>().dtype;
      if (!is_float(dtype)) throw UserError(fmt::format("gives floats, not {}", to_string(dtype)));
      return {dtype, t.in[0].shape};
    },
    .eval = eval_from_format,
    .grad = GRAD(dy),
};

constexpr OpDef scaled_quant_tensor_scale_rules = {
    .body = [](Node x, const NoAttrs&) { return finite_scale(tensor_max(wide_input(x)) / (kNvfp4Max * kScaleMax)); },
    .grad = GRAD(none),
};

constexpr OpDef scaled_quant_scale_rules = {
    .min_inputs = 1,
    .max_inputs = 2,
    .body =
        [](const BodyArgs& args) {
          return scale_body(args.in[0], optional_input(args.in, 1), args.attrs.as<ScaledQuantScaleAttrs>());
        },
    .grad = GRAD(none, none),
};

constexpr OpDef scaled_quantize_rules = {
    .min_inputs = 2,
    .max_inputs = 3,
    .codes = true,
    .body =
        [](const BodyArgs& args) {
          return quantize_body(args.in[0], args.in[1], optional_input(args.in, 2), args.attrs.as<ScaledQuantAttrs>());
        },
    .grad = GRAD(dy, none, none),
};

constexpr OpDef scaled_dequantize_rules = {
    .min_inputs = 2,
    .max_inputs = 3,
    .body =
        [](const BodyArgs& args) {
          return dequantize_body(args.in[0], args.in[1], optional_input(args.in, 2),
                                 args.attrs.as<ScaledDequantizeAttrs>());
        },
    .grad = GRAD(dy, none, none),
};

constexpr OpDef scaled_matmul_rules = {
    .min_inputs = 4,
    .max_inputs = 7,
    .body = [](const BodyArgs& args) { return scaled_matmul_body(args); },
    .grad = scaled_matmul_grad,
};

#define QUANT(...) DEFINE_OP(Quant, __VA_ARGS__)
#define QUANT_BY(...) DEFINE_OP(Composite, __VA_ARGS__)
#include "ops/ops.def"

}  // namespace rlx
