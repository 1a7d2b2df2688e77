// Number formats: scales, codes and values of whole tensors, rows or blocks.
#include <algorithm>
#include <cmath>
#include <optional>

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
  r.block = block_size(layout);
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

// What it runs is still to be said.
Step step_between(Node n, const View& from, const View& to, bool kept) {
  return {.name = label_of(n),
          .reads = {from.buffer},
          .writes = {to.buffer},
          .kept = kept,
          .interpreted = false,
          .run = nullptr};
}

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

bool Planner::plan_scale(Node n) {
  bool two_level = n.is(ops::scaled_quant_tensor_scale);
  if (!two_level && !n.is(ops::scaled_quant_scale)) return false;
  View x = contiguous_f32_memory(n.input(0)), out = storage(n);
  Extents shape = at(n.input(0)).shape;
  Step step = step_between(n, x, out, at(n).kept);
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

// How a node codes or decodes; to_format and from_format have neither scales nor blocks.
struct Coding {
  Format format;
  ScaleLayout layout;
};
Coding coding_of(Node n) {
  if (n.is(ops::to_format)) return {n.attrs<ToFormatAttrs>().format, ScaleLayout::PerTensor};
  if (n.is(ops::from_format)) return {n.attrs<FromFormatAttrs>().format, ScaleLayout::PerTensor};
  if (n.is(ops::scaled_quantize)) return {n.attrs<ScaledQuantAttrs>().format, n.attrs<ScaledQuantAttrs>().layout};
  auto& attrs = n.attrs<ScaledDequantizeAttrs>();
  return {attrs.format, attrs.layout};
}

// A tensor's rows and the scales beside it.
struct ScaledRows {
  Rows rows;
  std::int64_t size;
  ScaleLayout layout;
  std::optional<View> scale, tensor_scale;

  float second(std::byte* const* b) const { return tensor_scale ? *data<float>(b, *tensor_scale) : 1; }

  // Calls f(first element, elements, scales of the row's blocks times `factor`) for each row.
  template <class F>
  void each(std::byte* const* b, float factor, F&& f) const {
    for_rows(rows, [&](std::int64_t row) {
      thread_local std::vector<float> scratch;
      std::int64_t start = row * rows.columns;
      f(start, std::min(rows.columns, size - start), scales_of(b, row, factor, scratch));
    });
  }

 private:
  const float* scales_of(std::byte* const* b, std::int64_t row, float factor, std::vector<float>& scratch) const {
    static constexpr float kOne = 1;
    if (!scale) return &kOne;
    if (layout == ScaleLayout::PerTensor) return data<float>(b, *scale);
    auto table = decode_table(layout == ScaleLayout::Mx ? Format::E8M0 : Format::F8E4M3);
    scratch.resize(std::size_t(rows.blocks));
    for (std::int64_t i = 0; i < rows.blocks; ++i)
      scratch[std::size_t(i)] = table[data<std::uint8_t>(b, *scale)[row * rows.blocks + i]] * factor;
    return scratch.data();
  }
};

// `memory` gives where an input stands, side by side.
template <class F>
ScaledRows scaled_rows(Node n, const Extents& shape, Step& step, F&& memory) {
  ScaleLayout layout = coding_of(n).layout;
  ScaledRows out{rows_of(shape, layout), count(shape), layout, {}, {}};
  for (std::size_t i = 1; i < n.inputs().size(); ++i) {
    View view = memory(n.input(int(i)));
    step.reads.push_back(view.buffer);
    (i == 1 ? out.scale : out.tensor_scale) = view;
  }
  return out;
}

}  // namespace

bool Planner::plan_quantize(Node n) {
  if (!n.is(ops::to_format) && !n.is(ops::scaled_quantize)) return false;
  Format format = coding_of(n).format;
  if (n.is(ops::to_format)) {
    auto& a = n.attrs<ToFormatAttrs>();
    bool usual =
        a.rounding == Rounding::NearestEven && (a.saturate || info(format).specials == FormatInfo::Specials::None);
    if (!usual || !has_fast_encode(format) || !is_row_float(n.input(0).dtype())) return false;
  }
  View x = contiguous_f32_memory(n.input(0)), out = storage(n);
  if (!out.is_contiguous()) return false;
  Step step = step_between(n, x, out, at(n).kept);
  auto rows = scaled_rows(n, at(n).shape, step, [&](Node in) { return contiguous_memory(in); });
  step.run = [=, code = float_code(format)](std::byte* const* b) {
    rows.each(b, rows.second(b), [&](std::int64_t start, std::int64_t columns, const float* scales) {
      const float* from = data<float>(b, x) + start;
      std::uint8_t* to = data<std::uint8_t>(b, out) + start;
      std::int64_t block = rows.rows.block;
      if (has_fast_encode(format)) return quant_kernels().encode(code, columns, block, from, scales, to);
      for (std::int64_t i = 0; i < columns; ++i) to[i] = encode(format, from[i] / scales[i / block]);
    });
  };
  add_step(std::move(step));
  at(n).ready = int(steps_.size());
  return true;
}

bool Planner::plan_dequantize(Node n) {
  if (!n.is(ops::from_format) && !n.is(ops::scaled_dequantize)) return false;
  if (n.dtype() != DType::F32 && n.dtype() != DType::BF16) return false;
  Format format = coding_of(n).format;
  if (!has_fast_decode(format)) return false;
  View codes = contiguous_memory(n.input(0)), out = storage(n);
  if (!out.is_contiguous()) return false;
  Step step = step_between(n, codes, out, at(n).kept);
  auto rows = scaled_rows(n, at(n).shape, step, [&](Node in) { return contiguous_memory(in); });
  step.run = [=, code = float_code(format), narrow = n.dtype() == DType::BF16](std::byte* const* b) {
    float factor = rows.second(b);
    rows.each(b, 1, [&](std::int64_t start, std::int64_t columns, const float* scales) {
      const std::uint8_t* from = data<std::uint8_t>(b, codes) + start;
      auto& k = quant_kernels();
      std::int64_t block = rows.rows.block;
      if (narrow)
        k.decode_bf16(code, columns, block, from, scales, factor, data<std::uint16_t>(b, out) + start);
      else
        k.decode_f32(code, columns, block, from, scales, factor, data<float>(b, out) + start);
    });
  };
  add_step(std::move(step));
  at(n).ready = int(steps_.size());
  return true;
}

bool Planner::plan_quant(Node n) { return plan_scale(n) || plan_quantize(n) || plan_dequantize(n); }

}  // namespace rlx::cpu
