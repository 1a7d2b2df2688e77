#include "quant/ternary.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/sum.h"

namespace rlx {
namespace {

Array checked(const Array& w, float eps) {
  if (!(eps > 0) || !std::isfinite(eps))
    throw UserError(fmt::format("[ternarize] got epsilon {}, expected a finite number above 0", eps));
  if (w.dtype() != DType::F32 && w.dtype() != DType::F16 && w.dtype() != DType::BF16)
    throw UserError(fmt::format("[ternarize] got {}, expected f32, f16 or bf16", to_string(w.type())));
  auto wide = w.cast(DType::F32);
  auto values = wide.values<float>();
  auto bad = std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
  if (bad != values.end())
    throw UserError(fmt::format("[ternarize] element {} of {} is {}", bad - values.begin(), to_string(w.type()), *bad));
  return wide;
}

// Row-major offsets of the indices of some axes.
std::vector<std::int64_t> offsets(const Extents& shape, const std::vector<bool>& wanted) {
  std::vector<std::int64_t> out{0};
  std::int64_t stride = 1;
  for (std::size_t a = shape.size(); a-- > 0; stride *= shape[a]) {
    if (!wanted[a]) continue;
    std::vector<std::int64_t> grown;
    grown.reserve(out.size() * std::size_t(shape[a]));
    for (std::int64_t i = 0; i < shape[a]; ++i)
      for (auto o : out) grown.push_back(i * stride + o);
    out = std::move(grown);
  }
  return out;
}

}  // namespace

float ternary_scale(std::span<const float> w, float eps) {
  float mean = w.empty() ? 0 : float(sum_abs_f64(w.data(), std::int64_t(w.size())) / double(w.size()));
  return mean < eps ? eps : mean;
}

void ternary_codes(std::span<const float> w, float scale, std::int8_t* codes) {
  for (std::size_t i = 0; i < w.size(); ++i) codes[i] = ternary_code(w[i], scale);
}

Ternary ternarize_per_tensor(const Array& w, float eps) {
  auto wide = checked(w, eps);
  Ternary out{Array(DType::I8, w.shape()), Array(DType::F32, Extents(w.shape().size(), 1))};
  auto scale = ternary_scale(wide.values<float>(), eps);
  out.scales.values<float>()[0] = scale;
  ternary_codes(wide.values<float>(), scale, out.codes.values<std::int8_t>().data());
  return out;
}

Ternary ternarize_per_channel(const Array& w, const Axes& reduced, float eps) {
  auto wide = checked(w, eps);
  auto kept_shape = w.shape();
  std::vector<bool> is_reduced(w.shape().size()), is_kept(w.shape().size(), true);
  for (auto a : normalize_axes(reduced, int(w.shape().size()))) {
    kept_shape[std::size_t(a)] = 1;
    is_reduced[std::size_t(a)] = true;
    is_kept[std::size_t(a)] = false;
  }
  Ternary out{Array(DType::I8, w.shape()), Array(DType::F32, kept_shape)};
  auto inner = offsets(w.shape(), is_reduced), outer = offsets(w.shape(), is_kept);
  auto values = wide.values<float>(), scales = out.scales.values<float>();
  auto codes = out.codes.values<std::int8_t>();
  std::vector<float> gathered(inner.size());
  for (std::size_t o = 0; o < outer.size(); ++o) {
    for (std::size_t i = 0; i < inner.size(); ++i) gathered[i] = values[std::size_t(outer[o] + inner[i])];
    scales[o] = ternary_scale(gathered, eps);
    for (std::size_t i = 0; i < inner.size(); ++i)
      codes[std::size_t(outer[o] + inner[i])] = ternary_code(gathered[i], scales[o]);
  }
  return out;
}

}  // namespace rlx
