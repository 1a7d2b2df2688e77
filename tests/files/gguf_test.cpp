// GGUF: byte equal to the `gguf` Python package's writer, and every malformed file refused.
#include <gtest/gtest.h>

#include <cmath>

#include "files/bytes.h"
#include "rlx/files.h"

namespace rlx {
namespace {

using namespace test;
#include "files/files_golden.inc"

constexpr std::uint32_t kF32 = 0, kF16 = 1, kQ8_0 = 8, kTQ2_0 = 35;

std::string refusal(const std::string& bytes) {
  TemporaryFile file(bytes);
  return message_of([&] { GgufFile::open(file.path()); });
}

TEST(Gguf, ReadsWhatThePackageWrote) {
  TemporaryFile in(from_hex(kGguf));
  auto file = GgufFile::open(in.path());
  EXPECT_EQ(file.get<std::string>("general.architecture"), "bitnet");
  EXPECT_EQ(file.get<std::uint8_t>("k.u8"), 200);
  EXPECT_EQ(file.get<std::int8_t>("k.i8"), -100);
  EXPECT_EQ(file.get<std::uint16_t>("k.u16"), 60000);
  EXPECT_EQ(file.get<std::int16_t>("k.i16"), -30000);
  EXPECT_EQ(file.get<std::uint32_t>("k.u32"), 4000000000u);
  EXPECT_EQ(file.get<std::int32_t>("k.i32"), -2000000000);
  EXPECT_EQ(file.get<float>("k.f32"), 1.5f);
  EXPECT_EQ(file.get<bool>("k.bool"), true);
  EXPECT_EQ(file.get<std::string>("k.string"), "välue");
  EXPECT_EQ(file.get<std::uint64_t>("k.u64"), (1ull << 63) + 1);
  EXPECT_EQ(file.get<std::int64_t>("k.i64"), -(1ll << 62));
  EXPECT_EQ(file.get<double>("k.f64"), 0.1);
  EXPECT_EQ(file.get<std::vector<std::string>>("k.strings"), (std::vector<std::string>{"a", "", "▁b"}));
  EXPECT_EQ(file.get<std::vector<std::int32_t>>("k.ints"), (std::vector<std::int32_t>{1, -2, 3}));
  EXPECT_EQ(file.get<std::vector<float>>("k.floats"), (std::vector<float>{.5f, -1}));
  EXPECT_EQ(file.get_int("k.u16"), 60000);
  EXPECT_EQ(file.get_number("k.i8"), -100);
  EXPECT_EQ(message_of([&] { file.get<std::uint32_t>("k.i32"); }), "key \"k.i32\": got i32, expected u32");
  EXPECT_EQ(message_of([&] { file.get<float>("k.none"); }), "key \"k.none\": got none, expected f32");
  EXPECT_EQ(message_of([&] { file.get_int("k.u64"); }), "key \"k.u64\": got u64, expected an integer of 63 bits");
  EXPECT_EQ(message_of([&] { file.get_int("k.bool"); }), "key \"k.bool\": got bool, expected an integer of 63 bits");
  EXPECT_EQ(message_of([&] { file.get_number("k.ints"); }), "key \"k.ints\": got i32[], expected a number");
  EXPECT_EQ(message_of([&] { file.tensor("none"); }), "there is no tensor \"none\" among its 3");

  auto m = file.tensor("m").to_array();
  EXPECT_EQ(m.shape(), (Extents{2, 3}));
  EXPECT_EQ(m.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(file.tensor("h").to_array().dtype(), DType::F16);
  auto q = file.tensor("q").to_array();
  EXPECT_EQ(q.dtype(), DType::F32);
  for (int i = 0; i < 64; ++i) EXPECT_NEAR(q.at(i), i - 32, 0.13);
}

TEST(Gguf, WritesWhatThePackageWrites) {
  TemporaryFile in(from_hex(kGguf)), out;
  auto file = GgufFile::open(in.path());
  GgufWriter writer;
  for (auto& [key, value] : file.values()) writer.set(key, value);
  writer.add("m", Array(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}), gguf_type("f32"));
  writer.add("h", Array(std::vector<float>{1.5f, -2}, {2}), kF16);
  std::vector<float> ramp;
  for (int i = -32; i < 32; ++i) ramp.push_back(float(i));
  writer.add("q", Array(ramp, {2, 32}), kQ8_0);
  writer.write(out.path());
  EXPECT_EQ(read_file(out.path()), from_hex(kGguf));
}

TEST(Gguf, EveryKindOfValueRoundTrips) {
  GgufWriter writer;
  const GgufValue values[] = {std::uint8_t(1),
                              std::int8_t(-1),
                              std::uint16_t(2),
                              std::int16_t(-2),
                              std::uint32_t(3),
                              std::int32_t(-3),
                              1.5f,
                              true,
                              std::string("x\0y", 3),
                              std::uint64_t(4),
                              std::int64_t(-4),
                              2.5,
                              std::vector<std::uint8_t>{1, 2},
                              std::vector<std::int8_t>{-1},
                              std::vector<std::uint16_t>{2},
                              std::vector<std::int16_t>{-2},
                              std::vector<std::uint32_t>{},
                              std::vector<std::int32_t>{-3},
                              std::vector<float>{1.5f},
                              std::vector<bool>{true, false},
                              std::vector<std::string>{"a", ""},
                              std::vector<std::uint64_t>{4},
                              std::vector<std::int64_t>{-4},
                              std::vector<double>{2.5}};
  static_assert(std::size(values) == std::variant_size_v<GgufValue>);
  for (auto& v : values) writer.set("key." + gguf_kind(v), v);
  TemporaryFile out;
  writer.write(out.path());
  auto file = GgufFile::open(out.path());
  for (auto& v : values) EXPECT_EQ(*file.find("key." + gguf_kind(v)), v) << gguf_kind(v);
  EXPECT_TRUE(file.tensors().empty());
}

TEST(Gguf, HonoursTheAlignment) {
  for (std::uint32_t alignment : {8u, 24u, 64u}) {
    GgufWriter writer;
    writer.set("general.alignment", alignment);
    writer.add("a", Array::scalar(1, DType::F32), kF32);
    writer.add("b", Array(std::vector<float>{2, 3}, {2}), kF32);
    TemporaryFile out;
    writer.write(out.path());
    EXPECT_EQ(std::filesystem::file_size(out.path()) % alignment, 0u);
    auto file = GgufFile::open(out.path());
    EXPECT_EQ(file.tensor("a").to_array().at(0), 1);
    EXPECT_EQ(file.tensor("b").to_array().at(1), 3);
    EXPECT_EQ(file.tensor("b").bytes.data() - file.tensor("a").bytes.data(), alignment);
  }
  auto key = gguf_key("general.alignment", 4, u32(64));
  TemporaryFile in(gguf(1, 1, key + gguf_info("b", {1}, kF32, 64), std::string(64, '\0') + f32s({2}), 64));
  EXPECT_EQ(GgufFile::open(in.path()).tensor("b").to_array().at(0), 2);
}

TEST(Gguf, TernaryTensorsKeepTheirCodes) {
  std::vector<std::int8_t> codes(512);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = std::int8_t(i * i % 3) - 1;
  const float one[] = {1};
  GgufWriter writer;
  writer.add_ternary("w", Array(codes, {2, 256}), one, kTQ2_0);
  writer.add_ternary("v", Array(codes, {2, 256}), one, gguf_type("tq1_0"));
  TemporaryFile out;
  writer.write(out.path());
  auto file = GgufFile::open(out.path());
  EXPECT_EQ(file.tensor("w").to_array().to_vector<std::int8_t>(), codes);
  EXPECT_EQ(file.tensor("v").to_array().to_vector<std::int8_t>(), codes);
  EXPECT_EQ(file.tensor("w").bytes.size(), 2u * 66);
}

TEST(Gguf, UnusualFilesLoad) {
  auto open = [](const std::string& bytes) {
    TemporaryFile file(bytes);
    return GgufFile::open(file.path());
  };
  EXPECT_TRUE(open(gguf(0, 0, "")).values().empty());
  EXPECT_EQ(open(gguf(0, 1, gguf_key("general.architecture", 8, gguf_text("x")))).values().size(), 1u);
  EXPECT_EQ(open(gguf(1, 0, gguf_info(std::string(63, 'n'), {1}, kF32, 0), f32s({1}))).tensors().size(), 1u);
  EXPECT_EQ(open(gguf(1, 0, gguf_info("t", {}, kF32, 0), f32s({5}))).tensor("t").to_array().at(0), 5);
  EXPECT_EQ(open(gguf(1, 0, gguf_info("t", {1}, kF32, 0), f32s({5}) + std::string(28 + 64, '\0'))).tensors().size(),
            1u);
  auto v2 = gguf(1, 0, gguf_info("t", {1}, kF32, 0), f32s({5}));
  v2[4] = 2;
  EXPECT_EQ(open(v2).tensor("t").to_array().at(0), 5);
  // Listed, but not decoded.
  auto k = open(gguf(1, 0, gguf_info("t", {256}, 16, 0), std::string(66, 'x')));
  EXPECT_EQ(gguf_type_name(k.tensor("t").type), "IQ2_XXS");
  EXPECT_THROW(k.tensor("t").to_array(), Unsupported);
  EXPECT_EQ(gguf_type_name(999), "type 999");
}

TEST(Gguf, MalformedFilesAreRefused) {
  constexpr std::uint64_t kMost = ~0ull;
  auto head = [](std::uint64_t version, std::uint64_t tensors, std::uint64_t keys) {
    return "GGUF" + u32(version) + u64(tensors) + u64(keys);
  };
  auto t = gguf_info("t", {1}, kF32, 0);
  auto data = f32s({1, 2, 3, 4});
  auto align = [](std::uint32_t kind, std::uint32_t v) { return gguf_key("general.alignment", kind, u32(v)); };
  const std::pair<std::string, const char*> cases[] = {
      {"", "the file is empty"},
      {"GGUF", "the file ends in its header (byte 4)"},
      {"GGUF" + u32(3) + u64(1), "the file ends in its header (byte 16)"},
      {"GGUX" + u32(3) + u64(0) + u64(0), "it does not start with GGUF"},
      {head(0, 0, 0), "got version 0, expected 2 or 3"},
      {head(1, 0, 0), "got version 1, expected 2 or 3"},
      {head(4, 0, 0), "got version 4, expected 2 or 3"},
      {head(0x03000000, 0, 0), "it is big-endian (version 0x03000000), expected little-endian"},
      {head(3, 0, 1ull << 60) + u64(0), "1152921504606846976 keys in the 8 bytes that are left"},
      {head(3, kMost, 0) + u64(0), "18446744073709551615 tensors in the 8 bytes that are left"},
      {gguf(0, 1, gguf_key("", 4, u32(1))), "key 0 has an empty name (byte 24)"},
      {gguf(0, 1, u64(kMost) + "k" + u32(4) + u32(1)),
       "the name of key 0 has a length of 18446744073709551615 bytes, but 32 are left"},
      {gguf(0, 1, gguf_key("k", 8, u64(kMost))), "a text of key \"k\" has a length of 18446744073709551615 bytes, but"},
      {gguf(0, 1, gguf_key("k", 13, u64(0))), "key \"k\": got the value type 13, expected 0 to 12"},
      {gguf(0, 1, gguf_key("k", 9, u32(13) + u64(0))), "key \"k\": got the value type 13, expected 0 to 12"},
      {gguf(0, 1, gguf_key("k", 9, u32(9) + u64(1) + u32(0) + u64(0))),
       "key \"k\": arrays of arrays are not supported"},
      {gguf(0, 1, gguf_key("k", 9, u32(10) + u64(1ull << 61))),
       "key \"k\": an array of 2305843009213693952 elements, but"},
      {gguf(0, 1, gguf_key("k", 9, u32(8) + u64(1ull << 40))), "key \"k\": an array of 1099511627776 elements, but"},
      {gguf(0, 1, gguf_key("k", 7, "\2")), "key \"k\": got 2 for a bool, expected 0 or 1 (byte 37)"},
      {gguf(0, 2, gguf_key("k", 4, u32(1)) + gguf_key("k", 4, u32(1))), "the key \"k\" stands twice (byte 41)"},
      {gguf(1, 1, align(5, 32) + t, data), "general.alignment is i32, expected u32"},
      {gguf(1, 1, align(4, 0) + t, data), "general.alignment is 0, expected a multiple of 8 that is not 0"},
      {gguf(1, 1, align(4, 3) + t, data), "general.alignment is 3, expected a multiple of 8 that is not 0"},
      {gguf(1, 1, align(4, 0xfffffff8) + t, data), "the data would start at byte 4294967288, but the file has"},
      {gguf(1, 0, gguf_info("", {1}, kF32, 0), data), "tensor 0 has an empty name"},
      {gguf(1, 0, gguf_info(std::string(64, 'n'), {1}, kF32, 0), data),
       "tensor \"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\": the name has 64 bytes, expected "
       "at most 63"},
      {gguf(1, 0, gguf_info("t", {1, 1, 1, 1, 1}, kF32, 0), data),
       "tensor \"t\": got 5 dims, expected at most 4 (byte 33)"},
      {gguf(1, 0, gguf_text("t") + u32(0xffffffff) + u64(0) + u64(0), data),
       "tensor \"t\": got 4294967295 dims, expected at most 4"},
      {gguf(1, 0, gguf_info("t", {1, 0}, kF32, 0), data), "tensor \"t\": dim 1 is 0, expected 1 to 2^63 - 1"},
      {gguf(1, 0, gguf_info("t", {1ull << 63}, kF32, 0), data),
       "tensor \"t\": dim 0 is 9223372036854775808, expected 1 to 2^63 - 1"},
      {gguf(1, 0, gguf_info("t", {4194305, 4194305, 211106198978564}, kF32, 0), data),
       "tensor \"t\": shape [211106198978564,4194305,4194305]: the number of elements does not fit 63 bits"},
      {gguf(1, 0, gguf_info("t", {4, (1ull << 60) - 1}, kF32, 0), data),
       "tensor \"t\": 1152921504606846975 rows of 4 elements of F32 do not fit 63 bits"},
      {gguf(1, 0, gguf_info("t", {1}, 5, 0), data), "tensor \"t\": the type 5 is not known"},
      {gguf(1, 0, gguf_info("t", {100, 2}, kTQ2_0, 0), std::string(66, '\0')),
       "tensor \"t\": rows of 100 elements are not a multiple of TQ2_0's blocks of 256; types that fit: F16, BF16, "
       "F32"},
      {gguf(1, 0, gguf_info("t", {1}, kF32, 4), data), "tensor \"t\": the offset 4 is no multiple of the alignment 32"},
      {gguf(1, 0, gguf_info("t", {4}, kF32, 1ull << 40), data),
       "tensor \"t\": 16 bytes at offset 1099511627776, but the data has 16"},
      {gguf(1, 0, gguf_info("t", {4}, kF32, kMost - 31), data),
       "tensor \"t\": 16 bytes at offset 18446744073709551584, but the data has 16"},
      {gguf(1, 0, gguf_info("t", {5}, kF32, 0), data), "tensor \"t\": 20 bytes at offset 0, but the data has 16"},
      {gguf(2, 0, t + t, data), "tensor \"t\" stands twice"},
      {gguf(2, 0, gguf_info("a", {9}, kF32, 0) + gguf_info("b", {1}, kF32, 32), std::string(64, '\0')),
       "tensor \"b\": at offset 32 it overlaps one that ends at 36"},
  };
  for (auto& [bytes, message] : cases) EXPECT_EQ(refusal(bytes).substr(0, std::strlen(message)), message);
  EXPECT_THROW(GgufFile::open("/no/such/file"), DeviceError);
}

TEST(Gguf, Nvfp4BringsItsTensorScale) {
  GgufWriter w;
  Array a(DType::F32, {2, 64});
  for (std::int64_t i = 0; i < a.size(); ++i) a.values<float>()[std::size_t(i)] = float(i - 64);
  w.add("a.weight", a, gguf_type("nvfp4"));
  a.values<float>()[3] = NAN;
  EXPECT_EQ(message_of([&] { w.add("b.weight", a, gguf_type("nvfp4")); }),
            "[gguf] tensor \"b.weight\": element 3 is nan, which NVFP4 cannot hold");
  TemporaryFile out;
  w.write(out.path());
  auto file = GgufFile::open(out.path());
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(float(file.tensor("a.scale").to_array().at(0)), 64.f / 2688.f);
  EXPECT_NEAR(file.tensor("a.weight").to_array().at(0) * 64 / 2688, -64, 1e-4);
  EXPECT_NEAR(load_values(out.path()).at("a.weight").at(0), -64, 1e-4);
}

TEST(Gguf, WriterRefuses) {
  GgufWriter w;
  Array a(std::vector<float>{1, 2}, {2});
  const float one[] = {1};
  w.set("k", std::uint32_t(1));
  w.add("a", a, kF32);
  auto refused = [](auto&& f) { return message_of(f); };
  EXPECT_EQ(refused([&] { w.set("", 1.f); }), "[gguf] a key has an empty name");
  EXPECT_EQ(refused([&] { w.set("k", 1.f); }), "[gguf] the key \"k\" is set twice");
  EXPECT_EQ(refused([&] { w.set("general.alignment", std::uint32_t(4)); }),
            "[gguf] general.alignment must be a u32 that is a multiple of 8 and not 0");
  EXPECT_EQ(refused([&] { w.add("", a, kF32); }), "[gguf] tensor \"\": the name is empty");
  EXPECT_EQ(refused([&] { w.add("a", a, kF32); }), "[gguf] tensor \"a\": it is added twice");
  EXPECT_EQ(refused([&] { w.add(std::string(64, 'n'), a, kF32); }).substr(65 + 16),
            " the name has 64 bytes, expected at most 63");
  EXPECT_EQ(refused([&] {
              w.add("b", Array(DType::F32, {1, 1, 1, 1, 1}), kF32);
            }),
            "[gguf] tensor \"b\": the shape [1,1,1,1,1] has more than 4 axes");
  EXPECT_EQ(refused([&] {
              w.add("b", Array(DType::F32, {2, 0}), kF32);
            }),
            "[gguf] tensor \"b\": the shape [2,0] has no elements, which the format cannot hold");
  EXPECT_EQ(refused([&] { w.add("b", a, 5); }), "[gguf] tensor \"b\": the type 5 is not known");
  EXPECT_EQ(refused([&] { w.add("b", a, 26); }), "[gguf] tensor \"b\": got f32, expected i32 for the type I32");
  EXPECT_EQ(refused([&] { w.add("b", a, kQ8_0); }),
            "[gguf] tensor \"b\": rows of 2 elements are not a multiple of Q8_0's blocks of 32; types that fit: F16, "
            "BF16, F32");
  EXPECT_EQ(refused([&] { w.add_encoded("b", {32}, kQ8_0, std::vector<std::byte>(33)); }),
            "[gguf] tensor \"b\": got 33 bytes, expected 34 for [32] of Q8_0");
  EXPECT_EQ(refused([&] { w.add_ternary("b", Array(DType::I8, {100}), one, kTQ2_0); }),
            "[gguf] tensor \"b\": rows of 100 elements are not a multiple of TQ2_0's blocks of 256; types that fit: "
            "F16, BF16, F32");
  TemporaryFile out;
  w.write(out.path());
  EXPECT_EQ(GgufFile::open(out.path()).tensors().size(), 1u);  // what was refused left no trace
  EXPECT_THROW(w.write("/no/such/folder/x.gguf"), DeviceError);
}

}  // namespace
}  // namespace rlx
