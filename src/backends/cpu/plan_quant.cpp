// Number formats: scales, codes and values of whole tensors, rows or blocks.
#include <algorithm>
#include <cmath>

#include "backends/cpu/planner.h"
#include "backends/cpu/quant_kernels.h"
#include "base/parallel.h"
#include "quant/scaled.h"

namespace rlx::cpu {
namespace {

constexpr std::int64_t kGrain = 1 << 14;  // elements

template <class T>
T* data(std::byte* const* buffers, const View& v) {
  return reinterpret_cast<T*>(buffers[v.buffer]) + v.offset;
}

// A tensor as rows of blocks; without blocks, rows of some length that suits the threads.
struct Rows {
  std::int64_t rows = 1, columns = 1, block = 1, blocks = 1;
};
Rows rows_of(const Extents& shape, ScaleLayout layout) {
  Rows r;
  if (layout == ScaleLayout::PerTensor) {
    std::int64_t n = count(shape);
    r.columns = std::min(n, kGrain), r.rows = (n + r.columns - 1) / r.columns;
    r.block = r.columns;
    return r;
  }
  r.columns = shape.back(), r.rows = count(shape) / r.columns;
  r.block = layout == ScaleLayout::Mx ? 32 : 16;
  r.blocks = (r.columns + r.block - 1) / r.block;
  return r;
}
template <class F>
void for_rows(const Rows& r, F&& f) {
  parallel_for(r.rows, std::max<std::int64_t>(1, kGrain / r.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) f(row);
  });
}

// Of all elements; chunks are compared in any order.
float max_abs(const float* x, std::int64_t n) {
  std::int64_t chunks = (n + kGrain - 1) / kGrain;
  std::vector<float> most(static_cast<std::size_t>(chunks));
  auto& k = quant_kernels();
  parallel_for(chunks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c)
      most[std::size_t(c)] = k.max_abs(std::min(kGrain, n - c * kGrain), x + c * kGrain);
  });
  return k.max_abs(chunks, most.data());
}

bool is_row_float(DType d) { return d == DType::F32 || d == DType::F16 || d == DType::BF16; }
Node optional_input(Node n, std::size_t i) { return i < n.inputs().size() ? n.input(int(i)) : none; }

}  // namespace

bool is_claimed(Node n) {
  if (n.is(ops::scaled_quant_scale) || n.is(ops::scaled_quant_tensor_scale) || n.is(ops::scaled_quantize))
    return is_row_float(n.input(0).dtype());
  if (n.is(ops::scaled_dequantize)) {
    DType d = n.attrs<ScaledDequantizeAttrs>().dtype;
    return d == DType::F32 || d == DType::BF16;
  }
  return false;
}

View Planner::float_operand(Node x) {
  View view = product_operand(x, DType::F32);
  return view.is_contiguous() ? view : copied(view, DType::F32, at(x).kept);
}

bool Planner::plan_scale(Node n) {
  bool two_level = n.is(ops::scaled_quant_tensor_scale);
  if (!two_level && !n.is(ops::scaled_quant_scale)) return false;
  View x = float_operand(n.input(0)), out = storage(n);
  Extents shape = at(n.input(0)).shape;
  Step step{.name = label_of(n),
            .reads = {x.buffer},
            .writes = {out.buffer},
            .kept = at(n).kept,
            .interpreted = false,
            .run = nullptr};
  auto attrs = two_level ? ScaledQuantScaleAttrs{} : n.attrs<ScaledQuantScaleAttrs>();
  if (attrs.layout == ScaleLayout::PerTensor) {
    float divisor = two_level ? kNvfp4Divisor : float(info(attrs.format).max);
    step.run = [=, size = count(shape)](std::byte* const* b) {
      *data<float>(b, out) = tensor_scale(max_abs(data<float>(b, x), size), divisor);
    };
  } else {
    Node tensor_scale_node = optional_input(n, 1);
    View second = tensor_scale_node ? contiguous_memory(tensor_scale_node) : View{};
    if (tensor_scale_node) step.reads.push_back(second.buffer);
    step.run = [=, is_mx = attrs.layout == ScaleLayout::Mx, has_second = bool(tensor_scale_node),
                r = rows_of(shape, attrs.layout)](std::byte* const* b) {
      float of_tensor = has_second ? *data<float>(b, second) : 1;
      for_rows(r, [&](std::int64_t row) {
        thread_local std::vector<float> most;
        most.resize(std::size_t(r.blocks));
        quant_kernels().block_max_abs(r.columns, r.block, data<float>(b, x) + row * r.columns, most.data());
        for (std::int64_t i = 0; i < r.blocks; ++i)
          data<std::uint8_t>(b, out)[row * r.blocks + i] =
              is_mx ? mx_scale(most[std::size_t(i)], attrs.format, attrs.rule)
                    : nvfp4_scale(most[std::size_t(i)], of_tensor);
      });
    };
  }
  add_step(std::move(step));
  at(n).ready = int(steps_.size());
  return true;
}

namespace {

// The scales of one row of blocks as f32: where the codes are, what they are a format of, and what multiplies them.
struct RowScales {
  View scale, tensor_scale;
  ScaleLayout layout = ScaleLayout::PerTensor;
  bool has_tensor_scale = false, has_scale = true;

  float second(std::byte* const* b) const { return has_tensor_scale ? *data<float>(b, tensor_scale) : 1; }
  const float* of(std::byte* const* b, const Rows& r, std::int64_t row, float factor,
                  std::vector<float>& scratch) const {
    if (!has_scale) {
      static constexpr float kOne = 1;
      return &kOne;
    }
    if (layout == ScaleLayout::PerTensor) return data<float>(b, scale);
    auto table = decode_table(layout == ScaleLayout::Mx ? Format::E8M0 : Format::F8E4M3);
    scratch.resize(std::size_t(r.blocks));
    for (std::int64_t i = 0; i < r.blocks; ++i)
      scratch[std::size_t(i)] = table[data<std::uint8_t>(b, scale)[row * r.blocks + i]] * factor;
    return scratch.data();
  }
};

}  // namespace

bool Planner::plan_quantize(Node n) {
  bool plain = n.is(ops::to_format);
  if (!plain && !n.is(ops::scaled_quantize)) return false;
  if (plain) {
    auto& a = n.attrs<ToFormatAttrs>();
    bool usual =
        a.rounding == Rounding::NearestEven && (a.saturate || info(a.format).specials == FormatInfo::Specials::None);
    if (!usual || !has_fast_encode(a.format) || !is_row_float(n.input(0).dtype())) return false;
  }
  Format format = plain ? n.attrs<ToFormatAttrs>().format : n.attrs<ScaledQuantAttrs>().format;
  ScaleLayout layout = plain ? ScaleLayout::PerTensor : n.attrs<ScaledQuantAttrs>().layout;
  View x = float_operand(n.input(0)), out = storage(n);
  if (!out.is_contiguous()) return false;
  Step step{.name = label_of(n),
            .reads = {x.buffer},
            .writes = {out.buffer},
            .kept = at(n).kept,
            .interpreted = false,
            .run = nullptr};
  RowScales scales{.scale = {},
                   .tensor_scale = {},
                   .layout = layout,
                   .has_tensor_scale = bool(optional_input(n, 2)),
                   .has_scale = !plain};
  if (!plain) scales.scale = contiguous_memory(n.input(1)), step.reads.push_back(scales.scale.buffer);
  if (scales.has_tensor_scale)
    scales.tensor_scale = contiguous_memory(n.input(2)), step.reads.push_back(scales.tensor_scale.buffer);
  Extents shape = at(n).shape;
  step.run = [=, r = rows_of(shape, layout), size = count(shape), code = float_code(format)](std::byte* const* b) {
    for_rows(r, [&](std::int64_t row) {
      thread_local std::vector<float> scratch;
      const float* s = scales.of(b, r, row, scales.second(b), scratch);
      std::int64_t start = row * r.columns, columns = std::min(r.columns, size - start);
      const float* from = data<float>(b, x) + start;
      std::uint8_t* to = data<std::uint8_t>(b, out) + start;
      if (has_fast_encode(format)) return quant_kernels().encode(code, columns, r.block, from, s, to);
      for (std::int64_t i = 0; i < columns; ++i) to[i] = encode(format, from[i] / s[i / r.block]);
    });
  };
  add_step(std::move(step));
  at(n).ready = int(steps_.size());
  return true;
}

bool Planner::plan_dequantize(Node n) {
  bool plain = n.is(ops::from_format);
  if (!plain && !n.is(ops::scaled_dequantize)) return false;
  if (n.dtype() != DType::F32 && n.dtype() != DType::BF16) return false;
  Format format = plain ? n.attrs<FromFormatAttrs>().format : n.attrs<ScaledDequantizeAttrs>().format;
  if (!has_fast_decode(format)) return false;
  ScaleLayout layout = plain ? ScaleLayout::PerTensor : n.attrs<ScaledDequantizeAttrs>().layout;
  View codes = contiguous_memory(n.input(0)), out = storage(n);
  if (!out.is_contiguous()) return false;
  Step step{.name = label_of(n),
            .reads = {codes.buffer},
            .writes = {out.buffer},
            .kept = at(n).kept,
            .interpreted = false,
            .run = nullptr};
  RowScales scales{.scale = {},
                   .tensor_scale = {},
                   .layout = layout,
                   .has_tensor_scale = bool(optional_input(n, 2)),
                   .has_scale = !plain};
  if (!plain) scales.scale = contiguous_memory(n.input(1)), step.reads.push_back(scales.scale.buffer);
  if (scales.has_tensor_scale)
    scales.tensor_scale = contiguous_memory(n.input(2)), step.reads.push_back(scales.tensor_scale.buffer);
  Extents shape = at(n).shape;
  step.run = [=, r = rows_of(shape, layout), size = count(shape), code = float_code(format),
              narrow = n.dtype() == DType::BF16](std::byte* const* b) {
    for_rows(r, [&](std::int64_t row) {
      thread_local std::vector<float> scratch;
      const float* s = scales.of(b, r, row, 1, scratch);
      float factor = scales.second(b);
      std::int64_t start = row * r.columns, columns = std::min(r.columns, size - start);
      const std::uint8_t* from = data<std::uint8_t>(b, codes) + start;
      if (narrow)
        quant_kernels().decode_bf16(code, columns, r.block, from, s, factor, data<std::uint16_t>(b, out) + start);
      else
        quant_kernels().decode_f32(code, columns, r.block, from, s, factor, data<float>(b, out) + start);
    });
  };
  add_step(std::move(step));
  at(n).ready = int(steps_.size());
  return true;
}

bool Planner::plan_quant(Node n) { return plan_scale(n) || plan_quantize(n) || plan_dequantize(n); }

}  // namespace rlx::cpu
