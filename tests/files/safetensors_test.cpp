// safetensors: byte equal to the format's own library, and every malformed file refused.
#include <gtest/gtest.h>

#include "files/bytes.h"
#include "rlx/files.h"

namespace rlx {
namespace {

using namespace test;
#include "files/files_golden.inc"

Safetensors load(const std::string& bytes) {
  TemporaryFile file(bytes);
  return load_safetensors(file.path());
}
std::string refusal(const std::string& bytes) {
  return message_of([&] { load(bytes); });
}
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets,
                const std::string& data) {
  return safetensors("{" + st_entry("t", dtype, shape, offsets) + "}", data);
}

TEST(Safetensors, ReadsAndWritesAsTheLibrary) {
  auto want = from_hex(kSafetensors);
  auto file = load(want);
  EXPECT_EQ(file.metadata, (std::map<std::string, std::string>{{"key", "välue \"1\""}}));
  EXPECT_EQ(file.tensors.size(), 9u);
  EXPECT_EQ(file.tensors.at("b").to_vector<float>(), (std::vector<float>{1.5f, -2}));
  EXPECT_EQ(file.tensors.at("a").to_vector<int>(), (std::vector<int>{1, 0, 1}));
  EXPECT_EQ(file.tensors.at("z").to_vector<std::int64_t>(), (std::vector<std::int64_t>{-(1LL << 40)}));
  EXPECT_EQ(file.tensors.at("y").at(0), 0.1);
  EXPECT_TRUE(file.tensors.at("y").shape().empty());
  EXPECT_EQ(file.tensors.at("u").at(0), 4000000000.0);
  EXPECT_EQ(file.tensors.at("h").shape(), (Extents{0, 3}));
  EXPECT_EQ(file.tensors.at("é\"\\\n").to_vector<int>(), (std::vector<int>{-1, 2}));
  EXPECT_EQ(file.tensors.at("c").values<c64>()[0], (c64{1, 2}));
  TemporaryFile out;
  save_safetensors(out.path(), file.tensors, file.metadata);
  EXPECT_EQ(read_file(out.path()), want);
}

TEST(Safetensors, EveryDTypeRoundTrips) {
  Tensors tensors;
  for (auto d : kAllDTypes) {
    Array a(d, {3});
    for (std::size_t i = 0; i < a.byte_size(); ++i) a.bytes()[i] = std::byte(d == DType::Bool ? i & 1 : 5 * i + 3);
    tensors[std::string(to_string(d))] = a;
  }
  TemporaryFile out;
  save_safetensors(out.path(), tensors);
  auto back = load_safetensors(out.path());
  ASSERT_EQ(back.tensors.size(), tensors.size());
  for (auto& [name, a] : tensors) EXPECT_TRUE(identical(back.tensors.at(name), a)) << name;
  EXPECT_TRUE(back.metadata.empty());
}

TEST(Safetensors, UnusualFilesLoad) {
  EXPECT_TRUE(load(safetensors("{}")).tensors.empty());
  EXPECT_EQ(
      load(safetensors("{\"__metadata__\":{}," + st_entry("t", "F32", "[1]", "[0,4]") + "}", "abcd")).tensors.size(),
      1u);
  EXPECT_EQ(load(safetensors("{\"__metadata__\":{\"a\":\"b\"}}")).metadata.at("a"), "b");
  EXPECT_EQ(load(one("F32", "[]", "[0,4]", f32s({7}))).tensors.at("t").at(0), 7);
  EXPECT_EQ(load(one("F32", "[3,0]", "[0,0]", "")).tensors.at("t").shape(), (Extents{3, 0}));
  auto swapped = load(safetensors(
      "{" + st_entry("b", "F32", "[1]", "[4,8]") + "," + st_entry("a", "F32", "[1]", "[0,4]") + "}", f32s({1, 2})));
  EXPECT_EQ(swapped.tensors.at("a").at(0), 1);
  EXPECT_EQ(swapped.tensors.at("b").at(0), 2);
  EXPECT_EQ(
      load(safetensors("{" + st_entry("\\u5c64.\\u6a29", "F32", "[1]", "[0,4]") + "}", "abcd")).tensors.count("層.権"),
      1u);
  auto f8 = load(one("F8_E4M3", "[2]", "[0,2]", "\x38\x40"));
  EXPECT_EQ(f8.formats.at("t"), "F8_E4M3");
  EXPECT_EQ(f8.tensors.at("t").to_vector<int>(), (std::vector<int>{0x38, 0x40}));
  // A zero-sized tensor between two others, and data that is not aligned for its dtype.
  auto odd = load(safetensors("{" + st_entry("a", "U8", "[1]", "[0,1]") + "," + st_entry("z", "F32", "[0]", "[1,1]") +
                                  "," + st_entry("b", "F32", "[1]", "[1,5]") + "}",
                              "x" + f32s({5})));
  EXPECT_EQ(odd.tensors.at("b").at(0), 5);
}

TEST(Safetensors, MalformedFilesAreRefused) {
  auto entry = st_entry("t", "F32", "[1]", "[0,4]");
  const std::pair<std::string, const char*> cases[] = {
      {"", "it has 0 bytes, expected at least 8"},
      {std::string(7, '\1'), "it has 7 bytes"},
      {u64(std::uint64_t(1) << 63) + "{}", "the header has 9223372036854775808 bytes, expected at most 100000000"},
      {u64(100000001) + "{}", "the header has 100000001 bytes, expected at most 100000000"},
      {u64(3) + "{}", "the header has 3 bytes, but only 2 follow its length"},
      {safetensors(""), "the header does not start with '{'"},
      {safetensors("[1]"), "the header does not start with '{'"},
      {safetensors(" {" + entry + "}", "abcd"), "the header does not start with '{'"},
      {safetensors(std::string("{}\0x", 4)), "the header has a zero byte at byte 2"},
      {safetensors("{}x"), "the header is no valid JSON at byte 3"},
      {safetensors("{\"t\":"), "the header is no valid JSON at byte 6"},
      {safetensors("{\"\xff\":1}"), "the header is no valid JSON at byte 3"},
      {safetensors("{" + entry + "," + entry + "}", "abcd"), "tensor \"t\" stands twice"},
      {safetensors("{\"__metadata__\":{},\"__metadata__\":{}}"), "the header has __metadata__ twice"},
      {safetensors("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}"), "__metadata__ has the key \"a\" twice"},
      {safetensors("{\"__metadata__\":{\"a\":1}}"), "__metadata__: got a number, expected an object of texts"},
      {safetensors("{\"__metadata__\":null}"), "__metadata__: got null, expected an object of texts"},
      {safetensors("{\"t\":1}"), "tensor \"t\": got a number, expected an object with dtype, shape and data_offsets"},
      {safetensors("{\"t\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}"), "tensor \"t\": the key \"dtype\" stands twice"},
      {safetensors("{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}"),
       "tensor \"t\": it lacks one of dtype, shape and data_offsets"},
      {safetensors("{\"t\":{\"extra\":1}}"),
       "tensor \"t\": got the key \"extra\", expected dtype, shape and data_offsets"},
      {one("F32", "[1]", "[-4,0]", "abcd"), "tensor \"t\": got the number -4 in data_offsets"},
      {one("F32", "[1]", "[0,4,8]", "abcd"), "tensor \"t\": data_offsets has more than 2 numbers"},
      {one("F32", "[1]", "[0]", "abcd"), "tensor \"t\": data_offsets has 1 numbers, expected 2"},
      {one("F32", "[1]", "[4,0]", "abcd"), "tensor \"t\" at [4, 0): it ends before it begins"},
      {one("F32", "[1]", "[0,8]", "abcd"), "tensor \"t\" at [0, 8): the file has only 4 bytes of data"},
      {one("F32", "[1]", "[4,8]", "abcdefgh"), "tensor \"t\" at [4, 8): no tensor covers the bytes from 0 on"},
      {one("F32", "[1]", "[0,4]", "abcde"), "no tensor covers the bytes from 4 to the end at 5"},
      {one("F32", "[1000,1000]", "[0,4]", "abcd"), "tensor \"t\": [1000,1000] elements of F32 in 4 bytes"},
      {one("F32", "[1]", "[0,0]", ""), "tensor \"t\": [1] elements of F32 in 0 bytes"},
      {one("F32", "[1.5]", "[0,4]", "abcd"), "tensor \"t\": got the number 1.5 in shape"},
      {one("F32", "[-1]", "[0,4]", "abcd"), "tensor \"t\": got the number -1 in shape"},
      {one("F32", "[[1]]", "[0,4]", "abcd"), "tensor \"t\": got an array in shape"},
      {one("F32", "[18446744073709551615]", "[0,4]", "abcd"),
       "tensor \"t\": the size 18446744073709551615 does not fit 63 bits"},
      {one("F32", "[4611686018427387904,4611686018427387904]", "[0,4]", "abcd"),
       "tensor \"t\": shape [4611686018427387904,4611686018427387904]: the number"},
      {one("BOOL", "[2]", "[0,2]", "\1\2"), "tensor \"t\": element 1 is 2, expected 0 or 1"},
      {safetensors("{" + st_entry("a", "F32", "[2]", "[0,8]") + "," + st_entry("b", "F32", "[2]", "[4,12]") + "}",
                   "abcdefghijkl"),
       "tensor \"b\" at [4, 12): it overlaps a tensor that ends at 8"},
  };
  for (auto& [bytes, message] : cases) EXPECT_EQ(refusal(bytes).substr(0, std::strlen(message)), message);
  std::string deep;
  for (int i = 0; i < 20000; ++i) deep += "{\"a\":";
  EXPECT_NE(refusal(safetensors(deep)), "no error");
  EXPECT_NE(refusal(safetensors("{\"t\":" + std::string(1000000, '['))), "no error");
  std::string ranks = "[1";
  for (int i = 0; i < 64; ++i) ranks += ",1";
  EXPECT_EQ(refusal(one("F32", ranks + "]", "[0,4]", "abcd")), "tensor \"t\": it has more than 64 axes");
  EXPECT_THROW(load(one("F4", "[2]", "[0,1]", "a")), Unsupported);
  EXPECT_THROW(load_safetensors("/no/such/file"), DeviceError);
}

TEST(Safetensors, WriterRefuses) {
  TemporaryFile out("old");
  Array a(DType::F32, {1});
  EXPECT_EQ(message_of([&] {
              save_safetensors(out.path(), {{"__metadata__", a}});
            }),
            "a tensor cannot be named __metadata__");
  EXPECT_EQ(message_of([&] { save_safetensors(out.path(), {{"\xff", a}}); }), "the text \"\\xff\" is not UTF-8");
  EXPECT_EQ(message_of([&] { save_safetensors(out.path(), {{"x", Array()}}); }), "tensor \"x\" has no dtype");
  EXPECT_EQ(read_file(out.path()), "old");
}

TEST(Safetensors, WritingToALoadedTensorLeavesTheFile) {
  TemporaryFile file(one("F32", "[2]", "[0,8]", f32s({1, 2})));
  auto before = read_file(file.path());
  auto loaded = load_safetensors(file.path());
  loaded.tensors.at("t").values<float>()[0] = 9;
  EXPECT_EQ(read_file(file.path()), before);
  // And a file can be saved over itself.
  save_safetensors(file.path(), loaded.tensors);
  EXPECT_EQ(load_safetensors(file.path()).tensors.at("t").at(0), 9);
}

}  // namespace
}  // namespace rlx
