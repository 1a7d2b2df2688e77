#include "train/code_blocks.h"

#include <fmt/format.h>

namespace rlx {
namespace {

// Calls f(code, byte, shift) with the place of each code in the bytes, and g(scale, byte) with that of each scale.
template <class F, class G>
void visit_fp4(std::int64_t count, Fp4Layout layout, F&& f, G&& g) {
  std::int64_t half = layout.block / 2, group_bytes = layout.scales + layout.elements() / 2;
  for (std::int64_t group = 0; group * layout.elements() < count; ++group) {
    for (std::int64_t s = 0; s < layout.scales; ++s) {
      g(group * layout.scales + s, group * group_bytes + s);
      std::int64_t code = group * layout.elements() + s * layout.block;
      std::int64_t byte = group * group_bytes + layout.scales + s * half;
      for (std::int64_t j = 0; j < half; ++j) f(code + j, byte + j, 0), f(code + half + j, byte + j, 4);
    }
  }
}

}  // namespace

std::vector<std::byte> to_fp4_blocks(const BlockCodes& from, Fp4Layout layout) {
  std::int64_t count = from.codes.size();
  std::vector<std::byte> out(std::size_t(count / layout.elements() * (layout.scales + layout.elements() / 2)));
  auto codes = from.codes.values<std::uint8_t>(), scales = from.scales.values<std::uint8_t>();
  visit_fp4(
      count, layout,
      [&](std::int64_t code, std::int64_t byte, int shift) {
        out[std::size_t(byte)] |= std::byte((codes[std::size_t(code)] & 15) << shift);
      },
      [&](std::int64_t scale, std::int64_t byte) { out[std::size_t(byte)] = std::byte(scales[std::size_t(scale)]); });
  return out;
}

BlockCodes from_fp4_blocks(std::span<const std::byte> bytes, const Extents& shape, Fp4Layout layout) {
  BlockCodes out{Array(DType::U8, shape), Array(DType::U8, {shape[0], shape[1] / layout.block})};
  std::int64_t group_bytes = layout.scales + layout.elements() / 2;
  if (shape[1] % layout.elements() != 0 ||
      std::int64_t(bytes.size()) != out.codes.size() / layout.elements() * group_bytes)
    throw InternalError(fmt::format("{} bytes of 4-bit blocks for {}", bytes.size(), to_string(shape)));
  auto codes = out.codes.values<std::uint8_t>(), scales = out.scales.values<std::uint8_t>();
  visit_fp4(
      out.codes.size(), layout,
      [&](std::int64_t code, std::int64_t byte, int shift) {
        codes[std::size_t(code)] = std::uint8_t(std::to_integer<int>(bytes[std::size_t(byte)]) >> shift & 15);
      },
      [&](std::int64_t scale, std::int64_t byte) {
        scales[std::size_t(scale)] = std::to_integer<std::uint8_t>(bytes[std::size_t(byte)]);
      });
  return out;
}

}  // namespace rlx
