// Block formats: bytes equal to the `gguf` Python package's, both ways.
#include "quant/block_format.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "message_of.h"

namespace rlx {
namespace {

constexpr int kBlocks = 64;

// The same inputs as make_block_golden.py.
std::vector<std::uint32_t> numbers(std::uint32_t state, std::size_t n) {
  std::vector<std::uint32_t> out(n);
  for (auto& v : out) v = state = state * 1664525u + 1013904223u;
  return out;
}
std::vector<float> values(std::size_t n) {
  std::vector<float> out;
  for (auto v : numbers(7, n)) {
    auto run = int(out.size() / 256);
    out.push_back(run % 3 == 2 ? 0 : std::ldexp(float(std::int32_t(v) >> 8), run % 23 - 11 - 20));
  }
  return out;
}
std::vector<float> ternary_values(std::size_t n) {
  std::vector<float> out;
  for (auto v : numbers(11, n)) out.push_back(float((v >> 16) % 5) * 0.375f - 0.75f);
  return out;
}
std::vector<std::byte> random_bytes(std::size_t n) {
  std::vector<std::byte> out;
  for (auto v : numbers(13, n)) out.push_back(std::byte(v >> 24));
  return out;
}

std::uint32_t crc32(const void* bytes, std::size_t n) {
  std::uint32_t c = ~0u;
  for (std::size_t i = 0; i < n; ++i) {
    c ^= static_cast<const unsigned char*>(bytes)[i];
    for (int k = 0; k < 8; ++k) c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0u);
  }
  return ~c;
}
std::string hex(std::span<const std::byte> bytes) {
  std::string out;
  for (auto b : bytes) out += fmt::format("{:02x}", int(b));
  return out;
}

struct Golden {
  const char *name, *first_block;
  std::uint32_t encoded, ternary_encoded, decoded;
};
const Golden kGolden[] = {
#include "block_golden.inc"
};

TEST(BlockFormat, EncodesAndDecodesAsGgufDoes) {
  for (auto& g : kGolden) {
    auto& format = block_format(g.name);
    if (format.can_encode()) {
      auto a = encode(format, values(kBlocks * 256), 256, "t");
      EXPECT_EQ(hex({a.data(), std::size_t(format.bytes)}), g.first_block) << g.name;
      EXPECT_EQ(crc32(a.data(), a.size()), g.encoded) << g.name;
      auto b = encode(format, ternary_values(kBlocks * 256), 256, "t");
      EXPECT_EQ(crc32(b.data(), b.size()), g.ternary_encoded) << g.name;
    }
    std::vector<float> d(std::size_t(kBlocks * format.elements));
    decode(format, random_bytes(std::size_t(kBlocks * format.bytes)), d, "t");
    for (auto& v : d)
      if (std::isnan(v)) v = std::bit_cast<float>(0x7fc00000u);
    EXPECT_EQ(crc32(d.data(), d.size() * 4), g.decoded) << g.name;
  }
}

TEST(BlockFormat, TernaryCodesComeBack) {
  std::vector<std::int8_t> codes;
  for (auto v : numbers(3, 4 * 512)) codes.push_back(std::int8_t((v >> 16) % 3) - 1);
  const float scales[] = {1.f, 0.5f, 3.f, 0.25f}, one[] = {1.f};
  for (auto name : {"tq1_0", "TQ2_0"}) {
    auto& format = block_format(name);
    std::vector<float> back(codes.size());
    decode(format, encode_ternary(format, codes, one, 512, "t"), back, "t");
    for (std::size_t i = 0; i < codes.size(); ++i) ASSERT_EQ(back[i], codes[i]);
    // Codes as values give the same bytes: the largest magnitude of each block is 1.
    EXPECT_EQ(encode_ternary(format, codes, one, 512, "t"), encode(format, back, 512, "t"));
    decode(format, encode_ternary(format, codes, scales, 512, "t"), back, "t");
    for (std::size_t i = 0; i < codes.size(); ++i) ASSERT_EQ(back[i], float(codes[i]) * scales[i / 512]);
  }
}

TEST(BlockFormat, RefusesBadCodesAndScales) {
  auto& tq2 = block_format("TQ2_0");
  std::vector<std::int8_t> codes(512);
  const float one[] = {1}, three[] = {1, 1, 1}, tiny[] = {1e-9f}, huge[] = {1e6f}, nan[] = {NAN};
  codes[300] = 2;
  EXPECT_EQ(message_of<Error>([&] { encode_ternary(tq2, codes, one, 256, "w"); }),
            "[gguf] tensor \"w\": element 300 has the code 2, expected -1, 0 or 1");
  codes[300] = 1;
  EXPECT_EQ(message_of<Error>([&] { encode_ternary(tq2, codes, three, 256, "w"); }),
            "[gguf] tensor \"w\": got 3 scales for 2 rows, expected 1 or one a row");
  for (auto& scale : {tiny, huge, nan})
    EXPECT_NE(message_of<Error>([&] {
                encode_ternary(tq2, codes, {scale, 1}, 256, "w");
              }).find("cannot be held by f16"),
              std::string::npos);
  EXPECT_THROW(encode_ternary(block_format("Q8_0"), codes, one, 256, "w"), Unsupported);
}

TEST(BlockFormat, RowsMustBeWholeBlocks) {
  auto& tq2 = block_format("TQ2_0");
  EXPECT_EQ(encoded_size(tq2, 2, 256, "w"), 2 * 66);
  EXPECT_EQ(encoded_size(block_format("TQ1_0"), 1, 512, "w"), 2 * 54);
  EXPECT_EQ(message_of<Error>([&] { encoded_size(tq2, 1, 5460, "blk.0.ffn_down.weight"); }),
            "[gguf] tensor \"blk.0.ffn_down.weight\": rows of 5460 elements are not a multiple of TQ2_0's blocks of "
            "256; types that fit: F16, BF16, F32");
  EXPECT_NE(message_of<Error>([&] {
              encoded_size(tq2, 1, 288, "w");
            }).find("types that fit: MXFP4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, F16, BF16, F32"),
            std::string::npos);
  for (auto k : {100, 255, 257, 5460})
    for (auto name : {"TQ1_0", "TQ2_0"})
      EXPECT_THROW(encode(block_format(name), std::vector<float>(std::size_t(k)), k, "w"), UserError) << k;
  EXPECT_THROW(encoded_size(tq2, std::int64_t(1) << 62, 256, "w"), UserError);
}

TEST(BlockFormat, ABlockWithoutAValueIsMarked) {
  for (auto name : {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4"})
    for (float bad : {NAN, INFINITY, -INFINITY}) {
      std::vector<float> x(512, 127.f), back(512);
      x[3] = bad;
      auto& format = block_format(name);
      decode(format, encode(format, x, 256, "w"), back, "w");
      for (int i = 0; i < format.elements; ++i) ASSERT_TRUE(std::isnan(back[std::size_t(i)])) << name;
      for (auto i = std::size_t(format.elements); i < 512; ++i) ASSERT_NEAR(back[i], 127.f, 32) << name;
    }
}

TEST(BlockFormat, Nvfp4HasATensorScale) {
  auto& format = block_format("NVFP4");
  EXPECT_EQ(tensor_scale_name("blk.0.ffn_up.weight"), "blk.0.ffn_up.scale");
  EXPECT_EQ(tensor_scale_name("w"), "w.scale");
  // A block far below the tensor's largest is flushed to zero; no scale byte is NaN.
  std::vector<float> x(128), back(128);
  x[0] = 3000, x[70] = 1e-5f;
  float scale = tensor_scale_of(format, x);
  EXPECT_EQ(scale, 3000.f / 2688.f);
  auto bytes = encode(format, x, 128, "w", scale);
  for (int i : {0, 1, 2, 3, 36, 37, 38, 39}) EXPECT_EQ(int(bytes[std::size_t(i)]), i == 0 ? 0x7e : 0x01);
  decode(format, bytes, back, "w");
  EXPECT_NEAR(back[0] * scale, 3000, 1e-3);
  for (int i = 1; i < 128; ++i) EXPECT_EQ(back[std::size_t(i)], 0);
  EXPECT_EQ(tensor_scale_of(format, std::vector<float>(64)), 1);
  EXPECT_EQ(tensor_scale_of(format, std::vector<float>{NAN, 1}), 1);
  EXPECT_EQ(tensor_scale_of(block_format("Q4_0"), x), 1);
}

TEST(BlockFormat, TableIsSound) {
  for (auto& f : block_formats()) {
    EXPECT_EQ(find_block_format(f.id), &f) << f.name;
    EXPECT_EQ(&block_format(f.name), &f);
    if (f.can_encode()) {
      EXPECT_TRUE(f.decode) << f.name;
    }
    if (f.dtype != DType::Any) {
      EXPECT_EQ(f.bytes, std::int64_t(size_of(f.dtype))) << f.name;
    }
  }
  EXPECT_EQ(find_block_format(5), nullptr);
  EXPECT_EQ(message_of<Error>([] { block_format("tq3"); }),
            "[gguf] got the tensor type \"tq3\", expected one of F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, TQ1_0, "
            "TQ2_0, MXFP4, NVFP4");
  EXPECT_EQ(message_of<Error>([] { encode(block_format("Q4_K"), {}, 256, "w"); }),
            "[gguf] tensor \"w\": Q4_K cannot be written");
  EXPECT_THROW(decode(block_format("Q8_0"), random_bytes(33), std::span<float>(), "w"), UserError);
}

}  // namespace
}  // namespace rlx
