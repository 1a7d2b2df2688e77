// What the program says to bad input: one message each, a status that is not 0, and nothing left half-written.
#include "cli/rlx_program.h"

using namespace rlx::test;
namespace fs = std::filesystem;

namespace {

const std::string kDevice = "cpu";

// A trained run, once for all tests.
class Errors : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new TemporaryFolder;
    write(*shared_ / "text.txt", some_text());
    write(*shared_ / "tiny.json", tiny_config());
    write(*shared_ / "tiny_f32.json", tiny_config(R"("precision": "f32")"));
    Result r = call_rlx({"train", "--data", text(), "--out", run(), "--config", *shared_ / "tiny.json", "--steps", "2",
                         "--device", kDevice});
    ASSERT_EQ(r.status, 0) << r.err;
    r = call_rlx({"train", "--data", text(), "--out", *shared_ / "run_f32", "--config", *shared_ / "tiny_f32.json",
                  "--steps", "1", "--device", kDevice});
    ASSERT_EQ(r.status, 0) << r.err;
    r = call_rlx({"export", run(), "-o", gguf(), "--type", "f16"});
    ASSERT_EQ(r.status, 0) << r.err;
  }
  static void TearDownTestSuite() { delete shared_; }
  static std::string text() { return *shared_ / "text.txt"; }
  static std::string run() { return *shared_ / "run"; }
  static std::string gguf() { return *shared_ / "model.gguf"; }

  static Result train(const std::string& data, const std::string& config, const std::string& out,
                      const std::vector<std::string>& more = {"--steps", "1"}) {
    std::vector<std::string> args{"train", "--data", data, "--out", out, "--config", config, "--device", kDevice};
    args.insert(args.end(), more.begin(), more.end());
    return call_rlx(args);
  }
  // Training with this config is refused with this message, and no folder is made.
  static void expect_config_error(const std::string& json, const std::string& part) {
    TemporaryFolder folder;
    write(folder / "c.json", json);
    expect_error(train(text(), folder / "c.json", folder / "run"), part);
    EXPECT_FALSE(fs::exists(folder / "run")) << json;
  }
  static void expect_text_error(const std::string& bytes, const std::string& part) {
    TemporaryFolder folder;
    write(folder / "t.txt", bytes);
    expect_error(train(folder / "t.txt", *shared_ / "tiny.json", folder / "run"), part);
    EXPECT_FALSE(fs::exists(folder / "run"));
  }
  static std::string checkpoint_of(const std::string& run) {
    for (auto& entry : fs::directory_iterator(run))
      if (entry.path().filename().string().starts_with("checkpoint-")) return entry.path().string();
    return "";
  }
  static inline TemporaryFolder* shared_ = nullptr;
};

}  // namespace

TEST_F(Errors, CommandLine) {
  expect_error(call_rlx({}), "A subcommand is required", 2);
  expect_error(call_rlx({"trian"}), "unknown command \"trian\"", 2);
  expect_error(call_rlx({"train"}), "--data and --out, or --resume is required", 2);
  expect_error(call_rlx({"train", "--data", text()}), "--data requires --out", 2);
  expect_error(call_rlx({"train", "--data", text(), "--out", "x", "--step", "5"}), "--step", 2);
  expect_error(call_rlx({"train", "--data", text(), "--out", "x", "--steps", "5", "--minutes", "1"}), "excludes", 2);
  expect_error(call_rlx({"train", "--resume", run(), "--seed", "3"}), "excludes", 2);
  expect_error(call_rlx({"train", "--data", text(), "--out", "x", "--steps", "0"}), "--steps", 2);
  expect_error(call_rlx({"train", "--data", text(), "--out", "x", "--optimizer", "adam"}), "--optimizer", 2);
  expect_error(call_rlx({"export", run(), "-o", "x", "--type", "q4_0"}), "--type", 2);
  expect_error(call_rlx({"eval", run()}), "--data is required", 2);
  EXPECT_EQ(call_rlx({"--help"}).status, 0);
  EXPECT_EQ(call_rlx({"train", "--help"}).status, 0);
}

TEST_F(Errors, Configs) {
  expect_config_error("{", "not JSON");
  expect_config_error("[1]", "got array, expected a JSON object");
  expect_config_error(tiny_config(R"("colour": 3)"), "unknown key \"colour\"");
  expect_config_error(R"({"batch_size": "8"})", "got batch_size = \"8\", expected a whole number");
  expect_config_error(R"({"batch_size": 1.5})", "got batch_size = 1.5, expected a whole number");
  expect_config_error(R"({"batch_size": 0})", "got batch_size = 0, expected a number from 1");
  expect_config_error(R"({"learning_rate": true})", "got learning_rate = true, expected a number");
  expect_config_error(R"({"learning_rate": -1})", "got learning_rate = -1.0, expected a number above 0");
  expect_config_error(R"({"beta2": 1})", "got beta2 = 1.0, expected 0 or more and less than 1");
  expect_config_error(R"({"optimizer": "adam"})", "got optimizer = \"adam\", expected one of adamw, muon, sgd");
  expect_config_error(R"({"muon_bf16": 1})", "expected true or false");
  expect_config_error(R"({"architecture": "llama"})", "got architecture = \"llama\", expected \"bitnet\"");
  expect_config_error(R"({"head_count": 3})", "heads of an even length");
  expect_config_error(R"({"head_count_kv": 3})", "a divisor of head_count 4");
  expect_config_error(R"({"tokenizer": "bytes", "vocab_size": 300})", "expected 260");
  expect_config_error(R"({"steps": 5, "minutes": 1})", "steps or minutes, not both");
  TemporaryFolder folder;
  expect_error(train(text(), folder / "none.json", folder / "run"), "No such file");
}

TEST_F(Errors, Texts) {
  expect_text_error("", "the file is empty");
  expect_text_error(std::string("some\0bytes", 10), "got binary data (a NUL byte at offset 4)");
  expect_text_error("caf\xe9 au lait", "got byte 0xe9 at offset 3, expected UTF-8 text");
  TemporaryFolder folder;
  expect_error(train(folder / "none.txt", *shared_ / "tiny.json", folder / "run"), "No such file");
  expect_error(call_rlx({"eval", run(), "--data", folder / "none.txt"}), "No such file");
  write(folder / "empty.txt", "");
  expect_error(call_rlx({"eval", run(), "--data", folder / "empty.txt"}), "the file is empty");
  write(folder / "line.txt", "a\n");
  expect_error(train(folder / "line.txt", *shared_ / "tiny.json", folder / "run"), "a text of 2 bytes cannot be split");
  write(folder / "long.json", tiny_config(R"("context_length": 100000)"));
  expect_error(train(text(), folder / "long.json", folder / "run"), "tokens, expected 100001 or more");
  write(folder / "bpe.json", R"({"vocab_size": 2048})");
  expect_error(train(text(), folder / "bpe.json", folder / "run"), "[tokenizer]");
  EXPECT_FALSE(fs::exists(folder / "run"));
}

TEST_F(Errors, ExistingFolders) {
  expect_error(train(text(), *shared_ / "tiny.json", run()), "is there already: go on with --resume");
  TemporaryFolder folder;
  fs::create_directory(folder / "mine");
  write(folder / "mine/letter.txt", "dear");
  expect_error(train(text(), *shared_ / "tiny.json", folder / "mine", {"--steps", "1", "--overwrite"}),
               "not empty and no run");
  EXPECT_EQ(contents(folder / "mine/letter.txt"), "dear");
  write(folder / "file", "x");
  expect_error(train(text(), *shared_ / "tiny.json", folder / "file"), "is no folder");
  expect_error(call_rlx({"train", "--resume", folder / "mine"}), "is no run");
  expect_error(call_rlx({"eval", folder / "mine", "--data", text()}), "is no run");
  EXPECT_EQ(train(text(), *shared_ / "tiny.json", folder / "run").status, 0);
  EXPECT_EQ(train(text(), *shared_ / "tiny.json", folder / "run", {"--steps", "1", "--overwrite"}).status, 0);
}

TEST_F(Errors, UnknownDevice) {
  expect_error(call_rlx({"generate", run(), "--prompt", "the", "--device", "abacus"}), "abacus");
}

TEST_F(Errors, DamagedCheckpoints) {
  auto damaged = [&](const std::string& file, auto&& damage, const std::string& part) {
    TemporaryFolder folder;
    fs::copy(run(), folder / "run", fs::copy_options::recursive);
    std::string path = checkpoint_of(folder / "run") + "/" + file;
    damage(path);
    expect_error(call_rlx({"train", "--resume", folder / "run", "--device", kDevice}), part);
    if (file != "optimizer.safetensors")
      expect_error(call_rlx({"eval", folder / "run", "--data", text(), "--device", kDevice}), part);
  };
  auto cut = [](const std::string& path) { fs::resize_file(path, fs::file_size(path) / 2); };
  auto remove = [](const std::string& path) { fs::remove(path); };
  damaged("weights.safetensors", cut, "weights.safetensors");
  damaged("weights.safetensors", remove, "No such file");
  damaged("optimizer.safetensors", cut, "optimizer.safetensors");
  damaged("state.json", cut, "not a checkpoint's state");
  damaged(
      "tokenizer.json", [](auto& path) { write(path, "{"); }, "tokenizer.json");
  // Tensors of another model.
  damaged(
      "weights.safetensors",
      [&](auto& path) {
        fs::copy_file(fs::path(path).parent_path() / "optimizer.safetensors", path,
                      fs::copy_options::overwrite_existing);
      },
      "is missing");
}

TEST_F(Errors, DamagedGguf) {
  TemporaryFolder folder;
  std::string path = folder / "m.gguf";
  fs::copy_file(gguf(), path);
  fs::resize_file(path, fs::file_size(path) - 1000);
  for (auto command : {"generate", "inspect"}) {
    std::vector<std::string> args{command, path};
    if (args[0] == "generate") args.insert(args.end(), {"--prompt", "the"});
    expect_error(call_rlx(args), "m.gguf");
  }
  write(path, "GGUF");
  expect_error(call_rlx({"generate", path, "--prompt", "the"}), "m.gguf");
  write(path, "this is no model at all");
  expect_error(call_rlx({"eval", path, "--data", text()}), "m.gguf");
  expect_error(call_rlx({"eval", folder / "none.gguf", "--data", text()}), "No such file");
}

TEST_F(Errors, Exports) {
  TemporaryFolder folder;
  std::string out = folder / "m.gguf";
  expect_error(call_rlx({"export", run(), "-o", out, "--type", "tq2_0"}),
               "tensor \"blk.0.attn_q.weight\" is [16,16]: its rows of 16 are no multiple of 256");
  expect_error(call_rlx({"export", run(), "-o", out, "--type", "tq1_0"}), "which TQ1_0 needs");
  expect_error(call_rlx({"export", run(), "-o", out, "--type", "f16", "--embedding", "q8_0"}), "which Q8_0 needs");
  expect_error(call_rlx({"export", *shared_ / "run_f32", "-o", out, "--type", "tq2_0"}),
               "the model was trained in f32 precision");
  write(folder / "relu2.json", tiny_config(R"("activation": "relu2")"));
  ASSERT_EQ(train(text(), folder / "relu2.json", folder / "relu2").status, 0);
  expect_error(call_rlx({"export", folder / "relu2", "-o", out, "--type", "f16"}), "activation is relu2");
  EXPECT_FALSE(fs::exists(out));
  expect_error(call_rlx({"export", run(), "-o", folder / "no/such/folder.gguf", "--type", "f16"}), "No such file");
}

TEST_F(Errors, Precisions) {
  auto with = [](const std::string& keys) { return tiny_config(keys); };
  expect_config_error(with(R"("precision": "fp7")"), "got precision = \"fp7\", expected one of f32, bf16, f16");
  expect_config_error(with(R"("precision": "f32", "gradient_format": "e5m2")"), "expected f32 in precision f32");
  expect_config_error(with(R"("precision": "fp8", "gradient_format": "e4m3")"), "expected one of f32, e5m2");
  expect_config_error(with(R"("precision": "codebook")"), "at most the 64 vectors that blk.0.attn_q.weight has");
  expect_config_error(with(R"("precision": "codebook", "codebook_entry_dim": 3)"), "a divisor of the 16 inputs of");
  expect_config_error(with(R"("precision": "codebook", "codebook_entries": 257)"), "from 1 to 256");
  expect_config_error(with(R"("codebook_after": 1)"), "0 or more and less than 1");

  TemporaryFolder folder;
  std::string run = folder / "run", file = folder / "m.safetensors";
  write(folder / "c.json", with(R"("precision": "mxfp6")"));
  ASSERT_EQ(train(text(), folder / "c.json", run).status, 0);
  expect_error(call_rlx({"export", run, "-o", folder / "m.gguf"}), "GGUF has no type mxfp6: name a .safetensors file");
  expect_error(call_rlx({"export", run, "-o", file, "--type", "mxfp8"}), "trained in mxfp6 precision: use mxfp6");
  expect_error(call_rlx({"export", run, "-o", file, "--embedding", "q8_0"}), "got embedding type \"q8_0\"");
  expect_error(call_rlx({"export", *shared_ / "run_f32", "-o", file}), "f32 is written as GGUF: name a .gguf file");
  EXPECT_FALSE(fs::exists(file));
  // A safetensors file that is no model, and one of which something is missing.
  expect_error(call_rlx({"eval", checkpoint_of(run) + "/weights.safetensors", "--data", text()}), "no metadata");
  ASSERT_EQ(call_rlx({"export", run, "-o", file}).status, 0);
  std::string bytes = contents(file);
  auto replaced = [&](const std::string& from, const std::string& to) {
    std::string out = bytes;
    for (auto at = out.find(from); at != std::string::npos; at = out.find(from, at)) out.replace(at, from.size(), to);
    write(file, out);
    return call_rlx({"eval", file, "--data", text(), "--device", kDevice});
  };
  expect_error(replaced("blk.0.attn_q.weight_scale", "blk.0.attn_q.weight_scala"), "weight_scale\" is missing");
  expect_error(replaced("\\\"mxfp6\\\"", "\\\"mxfp8\\\""), "blk.0.attn_q.weight\" is u8[16,12], expected u8[16,16]");
  fs::resize_file(file, bytes.size() - 1);
  expect_error(call_rlx({"eval", file, "--data", text()}), "m.safetensors");
}

TEST_F(Errors, Generation) {
  auto generate = [&](std::vector<std::string> more) {
    std::vector<std::string> args{"generate", run(), "--device", kDevice};
    args.insert(args.end(), more.begin(), more.end());
    return call_rlx(args);
  };
  expect_error(generate({"--prompt", ""}), "the prompt is empty");
  expect_error(generate({"--prompt", "the", "--top-p", "0"}), "got top-p 0");
  expect_error(generate({"--prompt", "the", "--temperature", "-1"}), "got temperature -1");
  expect_error(generate({"--prompt", "the", "--top-k", "-1"}), "got top-k -1");
  expect_error(generate({"--prompt", "the", "-n", "-1"}), "got a number of tokens of -1");
  expect_error(generate({"--prompt", "the", "-n", "many"}), "many", 2);
  expect_error(call_rlx({"logits", run(), "--text", "", "-o", "x.npy"}), "the text is empty");
}

TEST_F(Errors, FullDisk) {
  TemporaryFolder folder;
  // Half a file is more than may be written.
  expect_error(call_rlx({"export", run(), "-o", folder / "m.gguf", "--type", "f32"}, "ulimit -f 2;"), "File too large");
  expect_error(
      call_rlx({"logits", run(), "--text", some_text(2), "-o", folder / "l.npy", "--device", kDevice}, "ulimit -f 2;"),
      "File too large");
  EXPECT_TRUE(fs::is_empty(folder.path()));
  expect_error(call_rlx({"inspect", run()}, "", ">/dev/full"), "No space left on device");
  // The old checkpoint stays, and is the one that training goes on from.
  write(folder / "c.json", tiny_config(R"("checkpoint_every": 1)"));
  ASSERT_EQ(train(text(), folder / "c.json", folder / "whole", {"--steps", "3"}).status, 0);
  ASSERT_EQ(train(text(), folder / "c.json", folder / "run", {"--steps", "1"}).status, 0);
  std::string old = checkpoint_of(folder / "run"), weights = contents(old + "/weights.safetensors");
  std::string state = contents(old + "/state.json");
  auto at = state.find("\"steps\": 1");
  ASSERT_NE(at, std::string::npos);
  write(old + "/state.json", state.replace(at, 10, "\"steps\": 3"));
  expect_error(call_rlx({"train", "--resume", folder / "run", "--device", kDevice}, "ulimit -f 8;"), "File too large");
  EXPECT_EQ(checkpoint_of(folder / "run"), old);
  EXPECT_EQ(contents(old + "/weights.safetensors"), weights);
  for (auto& entry : fs::directory_iterator(folder / "run"))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
}

TEST_F(Errors, RunningGraphs) {
  TemporaryFolder folder;
  write(folder / "g.rlx", "");
  expect_error(call_rlx({"run", folder / "none.rlx", "-o", folder / "out"}), "No such file");
  write(folder / "bad.rlx", "this is no graph\n");
  expect_error(call_rlx({"run", folder / "bad.rlx", "-o", folder / "out"}), "line 1");
  expect_error(call_rlx({"inspect", folder / "bad.rlx"}), "line 1");
  expect_error(call_rlx({"inspect", folder / "none"}), "No such file");
  EXPECT_FALSE(fs::exists(folder / "out"));
}
