// The vector kernels of number formats against the one definition, `encode` and `decode`, to the bit.
#include "backends/cpu/quant_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "rlx/array.h"

namespace rlx::cpu {
namespace {

std::vector<Isa> isas() {
  std::vector<Isa> out{Isa::Portable};
  if (cpu_features().isa >= Isa::Avx2) out.push_back(Isa::Avx2);
  if (cpu_features().isa >= Isa::Avx512) out.push_back(Isa::Avx512);
  return out;
}

// Every f16, every bf16, and the middle of each pair of neighbouring codes with what lies beside it.
std::vector<float> inputs(Format format) {
  std::vector<float> out;
  for (int i = 0; i < 65536; ++i) {
    f16 h;
    bf16 b;
    h.bits = b.bits = std::uint16_t(i);
    out.push_back(h), out.push_back(b);
  }
  for (int code = 0; code < 256; ++code)
    for (int next : {code + 1, code - 1}) {
      double a = decode(format, std::uint8_t(code)), b = decode(format, std::uint8_t(next));
      auto middle = float((a + b) / 2);
      for (float v : {middle, std::nextafter(middle, INFINITY), std::nextafter(middle, -INFINITY)}) out.push_back(v);
    }
  return out;
}

bool same_value(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (a != a && b != b);
}

TEST(QuantKernels, EncodeIsTheDefinition) {
  for (int i = 0; i < kFormatCount; ++i) {
    Format format = Format(i);
    if (!has_fast_encode(format)) continue;
    auto x = inputs(format);
    std::vector<std::uint8_t> got(x.size());
    for (Isa isa : isas()) {
      float one = 1;
      quant_kernels(isa).encode(float_code(format), std::int64_t(x.size()), std::int64_t(x.size()), x.data(), &one,
                                got.data());
      int wrong = 0;
      for (std::size_t k = 0; k < x.size(); ++k) wrong += got[k] != encode(format, x[k]);
      EXPECT_EQ(wrong, 0) << to_string(format) << " " << to_string(isa);
    }
  }
}

TEST(QuantKernels, DecodeIsTheDefinition) {
  std::vector<std::uint8_t> codes(256);
  for (int i = 0; i < 256; ++i) codes[std::size_t(i)] = std::uint8_t(i);
  for (int i = 0; i < kFormatCount; ++i) {
    Format format = Format(i);
    if (!has_fast_decode(format)) continue;
    for (Isa isa : isas()) {
      float one = 1;
      std::vector<float> got(256);
      std::vector<std::uint16_t> narrow(256);
      quant_kernels(isa).decode_f32(float_code(format), 256, 256, codes.data(), &one, 1, got.data());
      quant_kernels(isa).decode_bf16(float_code(format), 256, 256, codes.data(), &one, 1, narrow.data());
      for (int code = 0; code < 256; ++code) {
        float want = decode_table(format)[std::size_t(code)];
        EXPECT_TRUE(same_value(got[std::size_t(code)], want))
            << to_string(format) << " " << code << " " << to_string(isa);
        bf16 b;
        b.bits = narrow[std::size_t(code)];
        EXPECT_TRUE(same_value(b, want)) << to_string(format) << " " << code << " in bf16, " << to_string(isa);
      }
    }
  }
}

TEST(QuantKernels, BlocksAndTails) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (Isa isa : isas())
    for (int block : {16, 32})
      for (int columns : {1, 15, 16, 17, 31, 32, 33, 64, 75}) {
        std::vector<float> x(static_cast<std::size_t>(columns)), back(x.size());
        std::vector<float> most(static_cast<std::size_t>((columns + block - 1) / block));
        for (auto& v : x) v = normal(random);
        auto& k = quant_kernels(isa);
        k.block_max_abs(columns, block, x.data(), most.data());
        std::vector<std::uint8_t> codes(x.size());
        auto code = float_code(Format::F8E4M3);
        k.encode(code, columns, block, x.data(), most.data(), codes.data());
        k.decode_f32(code, columns, block, codes.data(), most.data(), 2, back.data());
        for (int i = 0; i < columns; ++i) {
          float amax = 0;
          for (int j = i / block * block; j < std::min(columns, (i / block + 1) * block); ++j)
            amax = std::max(amax, std::fabs(x[std::size_t(j)]));
          EXPECT_EQ(most[std::size_t(i / block)], amax);
          EXPECT_EQ(codes[std::size_t(i)], encode(Format::F8E4M3, x[std::size_t(i)] / amax));
          EXPECT_EQ(back[std::size_t(i)], float(decode(Format::F8E4M3, codes[std::size_t(i)])) * amax * 2);
        }
      }
}

TEST(QuantKernels, TheLargestMagnitudeIsNanWhereOneIs) {
  std::vector<float> x(100, -3);
  for (Isa isa : isas()) {
    EXPECT_EQ(quant_kernels(isa).max_abs(100, x.data()), 3);
    auto with = x;
    with[71] = -INFINITY;
    EXPECT_EQ(quant_kernels(isa).max_abs(100, with.data()), INFINITY);
    with[5] = -NAN;
    EXPECT_TRUE(std::isnan(quant_kernels(isa).max_abs(100, with.data())));
    EXPECT_EQ(quant_kernels(isa).max_abs(0, x.data()), 0);
  }
}

}  // namespace
}  // namespace rlx::cpu
