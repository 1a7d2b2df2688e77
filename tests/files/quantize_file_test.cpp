// quantize_tensors and load_values: what is written comes back, and metadata that lies is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "message_of.h"
#include "rlx/files.h"
#include "temporary.h"

namespace rlx {
namespace {

class NamedFile {
 public:
  explicit NamedFile(const std::string& ending) : path_(temporary_path("quantize" + ending)) {}
  ~NamedFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Tensors some_tensors() {
  Array w(DType::F32, {4, 256}), norm(DType::F32, {256});
  for (std::int64_t i = 0; i < w.size(); ++i) w.values<float>()[std::size_t(i)] = float(std::sin(0.3 * double(i)));
  for (auto& v : norm.values<float>()) v = 1;
  return {{"w", w}, {"norm", norm}, {"ids", Array(std::vector<std::int64_t>{1, 2, 3, 4}, {2, 2})}};
}

QuantizeOptions of_type(const std::string& type) {
  QuantizeOptions options;
  options.type = type;
  return options;
}

TEST(QuantizeFile, ValuesComeBack) {
  auto tensors = some_tensors();
  for (auto [type, ending] : {std::pair("q8_0", ".gguf"),
                              {"nvfp4", ".gguf"},
                              {"mxfp6", ".safetensors"},
                              {"nvfp4", ".safetensors"},
                              {"int4", ".safetensors"},
                              {"e4m3", ".safetensors"},
                              {"bf16", ".safetensors"}}) {
    NamedFile file(ending);
    auto rows = quantize_tensors(tensors, file.path(), of_type(type));
    ASSERT_EQ(rows.size(), 3u);
    auto back = load_values(file.path());
    ASSERT_EQ(back.size(), 3u) << type << ending;
    EXPECT_TRUE(identical(back.at("norm"), tensors.at("norm")));
    EXPECT_TRUE(identical(back.at("ids"), tensors.at("ids")));
    double most = 0;
    for (std::int64_t i = 0; i < 1024; ++i)
      most = std::max(most, std::fabs(back.at("w").at(i) - tensors.at("w").at(i)));
    EXPECT_EQ(most, rows[2].max_error) << type << ending;
    EXPECT_GT(most, 0);
    EXPECT_LT(most, 0.2);
  }
}

TEST(QuantizeFile, ProgressNamesEachTensor) {
  NamedFile file(".gguf");
  auto options = of_type("f16");
  std::vector<std::string> seen;
  options.progress = [&](const std::string& name, std::size_t i, std::size_t n) {
    EXPECT_EQ(i, seen.size());
    EXPECT_EQ(n, 3u);
    seen.push_back(name);
  };
  quantize_tensors(some_tensors(), file.path(), options);
  EXPECT_EQ(seen, (std::vector<std::string>{"ids", "norm", "w"}));
}

TEST(QuantizeFile, MetadataMustFitTheTensors) {
  NamedFile file(".safetensors");
  quantize_tensors(some_tensors(), file.path(), of_type("mxfp4"));
  auto good = load_safetensors(file.path());
  auto with = [&](const std::string& text) {
    auto metadata = good.metadata;
    metadata["rlx.quantized"] = text;
    save_safetensors(file.path(), good.tensors, metadata, good.formats);
    return message_of<Error>([&] { load_values(file.path()); });
  };
  EXPECT_EQ(with(R"({"w": {"type": "mxfp4", "shape": [4, 256]}})"), "no error");
  const std::pair<const char*, const char*> kCases[] = {
      {"[1]", "the metadata rlx.quantized is no JSON object"},
      {"{", "the metadata rlx.quantized is no JSON object"},
      {R"({"w": 1})", "its metadata is not"},
      {R"({"w": {"type": "mxfp4"}})", "its metadata is not"},
      {R"({"w": {"type": "mxfp5", "shape": [4, 256]}})", "have no type \"mxfp5\""},
      {R"({"w": {"type": "mxfp4", "shape": [4, 0]}})", "sizes are 1 or more"},
      {R"({"w": {"type": "mxfp4", "shape": [4, 9223372036854775807]}})", "63 bits"},
      {R"({"w": {"type": "mxfp4", "shape": [4, 252]}})", "got u8 [4,128], expected u8 [4,126]"},
      {R"({"w": {"type": "mxfp8", "shape": [4, 128]}})", "got u8 [4,128], expected F8_E4M3 [4,128]"},
      {R"({"w": {"type": "int8", "shape": [4, 128]}})", "expected i8 [4,128]"},
      {R"({"w": {"type": "nvfp4", "shape": [4, 256]}})",
       "tensor \"w_scale\": got F8_E8M0 [4,8], expected F8_E4M3 [4,16]"},
      {R"({"v": {"type": "mxfp4", "shape": [4, 256]}})", "there is no tensor \"v\" beside it"},
  };
  for (auto& [text, part] : kCases) EXPECT_NE(with(text).find(part), std::string::npos) << text << ": " << with(text);
}

TEST(QuantizeFile, TwoTensorsOfOneName) {
  NamedFile file(".safetensors");
  auto tensors = some_tensors();
  tensors.emplace("w_scale", Array(std::vector<float>{1}, {1}));
  EXPECT_EQ(message_of<Error>([&] { quantize_tensors(tensors, file.path(), of_type("int8")); }),
            "[quantize] two tensors would be named \"w_scale\"");
  EXPECT_NE(message_of<Error>([] {
              save_safetensors(temporary_path("never.safetensors"), {}, {}, {{"w", "F8_E4M3"}});
            }).find("there is no tensor \"w\""),
            std::string::npos);
}

}  // namespace
}  // namespace rlx
