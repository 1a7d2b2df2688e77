// Movements that do nothing, and chains of one kind.
#include <algorithm>

#include "ir/graph_data.h"
#include "ops/rules.h"
#include "passes/passes.h"

namespace rlx {
namespace {

Axes compose(const Axes& first, const Axes& then) {
  Axes out, from = normalize_perm(first, int(first.size()));
  for (int axis : normalize_perm(then, int(then.size()))) out.push_back(from[std::size_t(axis)]);
  return out;
}
bool is_identity(const Axes& perm) { return std::ranges::is_sorted(normalize_perm(perm, int(perm.size()))); }
bool all_zero(const Shape& shape) {
  return std::ranges::all_of(shape, [](const Dim& d) { return d == Dim(0); });
}
bool all_one(const Extents& steps) {
  return std::ranges::all_of(steps, [](std::int64_t s) { return s == 1; });
}

Node merged_slice(Node x, const SliceAttrs& first, const SliceAttrs& then) {
  Shape starts;
  Extents steps;
  for (std::size_t d = 0; d < then.steps.size(); ++d) {
    std::int64_t step = 0;
    if (__builtin_mul_overflow(first.steps[d], then.steps[d], &step)) return none;
    steps.push_back(step);
    starts.push_back(first.starts[d] + then.starts[d] * Dim(first.steps[d]));
  }
  return slice(x, starts, then.sizes, steps);
}

Node merged_pad(Node x, const PadAttrs& first, const PadAttrs& then) {
  if (field_text(first.value) != field_text(then.value)) return none;
  Shape low, high;
  for (std::size_t d = 0; d < first.low.size(); ++d) {
    low.push_back(first.low[d] + then.low[d]);
    high.push_back(first.high[d] + then.high[d]);
  }
  return pad(x, low, high, first.value);
}

// What is reversed once, not twice.
Axes flipped_once(Node x, const Axes& first, const Axes& then) {
  Axes a = normalize_axes(first, x.rank()), b = normalize_axes(then, x.rank()), out;
  std::ranges::set_symmetric_difference(a, b, std::back_inserter(out));
  return out;
}

}  // namespace

RuleSet movement_rules() {
  Graph p(Graph::Mode::Pattern);
  Node x = p.any("x");
  Node reshaped = reshape(reshape(x, {}), {}), expanded = expand(expand(x, {}), {});
  Node transposed = transpose(x, {}), transposed_twice = transpose(transposed, {});
  Node sliced = slice(x, {}, {}, {}), sliced_twice = slice(sliced, {}, {}, {});
  Node padded = pad(x, {}, {}, 0), padded_twice = pad(padded, {}, {}, 0);
  Node flipped = flip(x, {}), flipped_twice = flip(flipped, {});
  return {
      {p},
      {
          {"noop_reshape", reshape(x, {}), x},  // these two where the driver sees that nothing changes
          {"noop_expand", expand(x, {}), x},
          {"merge_reshapes", reshaped, [=](const Match& m) { return reshape(m[x], m[reshaped].shape()); }},
          {"merge_expands", expanded, [=](const Match& m) { return expand(m[x], m[expanded].shape()); }},
          {"noop_transpose", transposed, x, kExact,
           [=](const Match& m) { return is_identity(m[transposed].attrs<PermAttrs>().perm); }},
          {"merge_transposes", transposed_twice,
           [=](const Match& m) {
             return transpose(
                 m[x], compose(m[transposed].attrs<PermAttrs>().perm, m[transposed_twice].attrs<PermAttrs>().perm));
           }},
          {"noop_slice", sliced, x, kExact,
           [=](const Match& m) {
             return all_zero(m[sliced].attrs<SliceAttrs>().starts) && all_one(m[sliced].attrs<SliceAttrs>().steps);
           }},
          {"merge_slices", sliced_twice,
           [=](const Match& m) {
             return merged_slice(m[x], m[sliced].attrs<SliceAttrs>(), m[sliced_twice].attrs<SliceAttrs>());
           }},
          {"noop_pad", padded, x, kExact,
           [=](const Match& m) {
             return all_zero(m[padded].attrs<PadAttrs>().low) && all_zero(m[padded].attrs<PadAttrs>().high);
           }},
          {"merge_pads", padded_twice,
           [=](const Match& m) {
             return merged_pad(m[x], m[padded].attrs<PadAttrs>(), m[padded_twice].attrs<PadAttrs>());
           }},
          {"noop_flip", flipped, x, kExact, [=](const Match& m) { return m[flipped].attrs<AxesAttrs>().axes.empty(); }},
          {"merge_flips", flipped_twice,
           [=](const Match& m) {
             return flip(m[x], flipped_once(m[x], m[flipped].attrs<AxesAttrs>().axes,
                                            m[flipped_twice].attrs<AxesAttrs>().axes));
           }},
          {"concat_of_one", concat(Nodes{x}, 0), x},
      }};
}

}  // namespace rlx
