// Runs from the command line: what they write, and that stopping them anywhere changes nothing.
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/rlx_program.h"
#include "rlx/array.h"
#include "rlx/graph.h"
#include "rlx/ops.h"

using namespace rlx::test;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> train_args(const std::string& text, const std::string& config, const std::string& out,
                                    int steps, const std::vector<std::string>& more = {}) {
  std::vector<std::string> args{
      "train",    "--data",   text, "--config", config, "--out", out, "--steps", std::to_string(steps),
      "--device", "cpu"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// The one checkpoint of a run.
fs::path checkpoint(const fs::path& run) {
  fs::path found;
  int count = 0;
  for (auto& entry : fs::directory_iterator(run))
    if (entry.path().filename().string().starts_with("checkpoint-")) found = entry.path(), ++count;
  EXPECT_EQ(count, 1) << run;
  return found;
}

void expect_same_end(const fs::path& a, const fs::path& b) {
  EXPECT_EQ(checkpoint(a).filename(), checkpoint(b).filename());
  for (auto file : {"weights.safetensors", "optimizer.safetensors", "tokenizer.json"})
    EXPECT_TRUE(contents(checkpoint(a) / file) == contents(checkpoint(b) / file)) << file;
  auto losses = [](const fs::path& run) {
    std::vector<double> out;
    std::istringstream lines(contents(run / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) out.push_back(Json::parse(line).at("loss"));
    return out;
  };
  EXPECT_EQ(losses(a), losses(b));
}

class Runs : public testing::Test {
 protected:
  void SetUp() override {
    write(text(), some_text());
    write(config(), tiny_config(R"("checkpoint_every": 1)"));
  }
  std::string text() { return folder_ / "text.txt"; }
  std::string config() { return folder_ / "tiny.json"; }
  void train(const std::string& name, int steps, const std::vector<std::string>& more = {}) {
    Result r = call_rlx(train_args(text(), config(), folder_ / name, steps, more));
    ASSERT_EQ(r.status, 0) << r.err;
  }
  void expect_kills_change_nothing(const std::string& optimizer);
  TemporaryFolder folder_;
};

}  // namespace

TEST_F(Runs, WriteWhatTheyPromise) {
  Result r = call_rlx(train_args(text(), config(), folder_ / "run", 4, {"--json", "--seed", "7"}));
  ASSERT_EQ(r.status, 0) << r.err;
  Json result = Json::parse(r.out);
  EXPECT_EQ(result.at("steps"), 4);
  EXPECT_EQ(result.at("interrupted"), false);
  EXPECT_GT(result.at("val_bits_per_byte").get<double>(), 3);
  EXPECT_LT(result.at("val_bits_per_byte").get<double>(), 9);
  std::istringstream lines(contents(folder_ / "run/metrics.jsonl"));
  int step = 0;
  for (std::string line; std::getline(lines, line);) {
    Json m = Json::parse(line);
    EXPECT_EQ(m.at("step"), ++step);
    for (auto key : {"loss", "learning_rate", "tokens_per_s", "seconds"}) EXPECT_GT(m.at(key).get<double>(), 0) << key;
    EXPECT_TRUE(m.contains("val_bits_per_byte"));
  }
  EXPECT_EQ(step, 4);
  EXPECT_NE(contents(folder_ / "run/loss.svg").find("<svg"), std::string::npos);
  Json state = Json::parse(contents(checkpoint(folder_ / "run") / "state.json"));
  EXPECT_EQ(state.at("seed"), 7);
  EXPECT_EQ(state.at("step"), 4);
  // Nothing is left to do, and that is no error.
  r = call_rlx({"train", "--resume", folder_ / "run", "--device", "cpu", "--json"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NEAR(Json::parse(r.out).at("val_bits_per_byte").get<double>(), result.at("val_bits_per_byte").get<double>(),
              1e-12);
}

TEST_F(Runs, FollowFromTheSeed) {
  train("a", 3);
  train("b", 3);
  train("c", 3, {"--seed", "2"});
  train("d", 3, {"--threads", "1"});
  expect_same_end(folder_ / "a", folder_ / "b");
  expect_same_end(folder_ / "a", folder_ / "d");
  EXPECT_NE(contents(checkpoint(folder_ / "a") / "weights.safetensors"),
            contents(checkpoint(folder_ / "c") / "weights.safetensors"));
}

void Runs::expect_kills_change_nothing(const std::string& optimizer) {
  train("whole", 6, {"--optimizer", optimizer});
  std::string run = folder_ / "killed", log = folder_ / "log";
  // Kills at moments spread over all that a run does, from its first file on; each life is a little longer.
  pid_t pid = start_rlx(train_args(text(), config(), run, 6, {"--optimizer", optimizer}), log);
  int kills = 0;
  for (int life = 5;; life += 15) {
    std::this_thread::sleep_for(std::chrono::milliseconds(life));
    ::kill(pid, SIGKILL);
    int status = wait_for(pid);
    if (status == 0) break;
    ASSERT_EQ(status, 128 + SIGKILL) << contents(log);
    ASSERT_LT(++kills, 400);
    pid = fs::exists(run + "/run.json")
              ? start_rlx({"train", "--resume", run, "--device", "cpu"}, log)
              : start_rlx(train_args(text(), config(), run, 6, {"--optimizer", optimizer}), log);
  }
  EXPECT_GT(kills, 2);
  expect_same_end(folder_ / "whole", run);
}

TEST_F(Runs, KilledAnywhereEndTheSameWithAdamW) { expect_kills_change_nothing("adamw"); }
TEST_F(Runs, KilledAnywhereEndTheSameWithMuon) { expect_kills_change_nothing("muon"); }

TEST_F(Runs, CtrlCSavesAndSaysHowToGoOn) {
  write(config(), tiny_config());  // no checkpoints but the first and the last
  train("whole", 300);
  std::string run = folder_ / "stopped";
  pid_t pid = start_rlx(train_args(text(), config(), run, 300), folder_ / "log");
  for (int i = 0; i < 2000 && !fs::exists(run + "/checkpoint-00000000"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ::kill(pid, SIGINT);
  EXPECT_EQ(wait_for(pid), 1);
  EXPECT_NE(checkpoint(run).filename(), "checkpoint-00000300");
  Result r = call_rlx({"train", "--resume", run + "/", "--device", "cpu"});
  EXPECT_EQ(r.status, 0) << r.err;
  expect_same_end(folder_ / "whole", run);
}

TEST_F(Runs, MinutesBecomeAFixedNumberOfSteps) {
  write(config(), tiny_config(R"("checkpoint_every": 100000)"));
  Result r = call_rlx({"train", "--data", text(), "--config", config(), "--out", folder_ / "run", "--minutes", "0.03",
                       "--device", "cpu", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  int steps = Json::parse(r.out).at("steps");
  EXPECT_GE(steps, 1);
  train("same", steps);
  EXPECT_TRUE(contents(checkpoint(folder_ / "run") / "weights.safetensors") ==
              contents(checkpoint(folder_ / "same") / "weights.safetensors"));
}

TEST_F(Runs, AModelCanBeAskedFromItsRunAndItsFile) {
  train("run", 3);
  std::string run = folder_ / "run", gguf = folder_ / "m.gguf";
  Result r = call_rlx({"export", run, "-o", gguf, "--type", "f16", "--embedding", "f32", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  Json exported = Json::parse(r.out);
  for (auto& t : exported.at("tensors")) EXPECT_EQ(t.at("max_error"), 0) << t;
  auto ask = [&](std::vector<std::string> args) {
    args.insert(args.end(), {"--device", "cpu", "--json"});
    Result r = call_rlx(args);
    EXPECT_EQ(r.status, 0) << r.err;
    return Json::parse(r.out);
  };
  EXPECT_EQ(ask({"logits", run, "--text", "the river", "-o", folder_ / "a.npy"}).at("tokens"),
            ask({"logits", gguf, "--text", "the river", "-o", folder_ / "b.npy"}).at("tokens"));
  rlx::Array a = rlx::Array::load_npy(folder_ / "a.npy");
  EXPECT_EQ(a.shape(), (rlx::Extents{9, 260}));
  EXPECT_TRUE(identical(a, rlx::Array::load_npy(folder_ / "b.npy")));
  std::string some = folder_ / "some.txt";
  write(some, some_text(20));
  Json of_run = ask({"eval", run, "--data", some}), of_file = ask({"eval", gguf, "--data", some});
  EXPECT_EQ(of_run, of_file);
  EXPECT_EQ(of_run.at("bytes"), fs::file_size(some));

  auto text_of = [&](const std::string& seed) {
    return ask({"generate", gguf, "--prompt", "rain ", "-n", "24", "--seed", seed}).at("text").get<std::string>();
  };
  EXPECT_EQ(text_of("1"), text_of("1"));
  EXPECT_NE(text_of("1"), text_of("2"));
  EXPECT_TRUE(text_of("1").starts_with("rain "));
  auto params_of = [&](const std::string& path) {
    return Json::parse(call_rlx({"inspect", path, "--json"}).out).at("params");
  };
  EXPECT_EQ(params_of(gguf), params_of(run));
}

TEST(RunningAGraph, WritesItsOutputs) {
  TemporaryFolder folder;
  rlx::Graph graph;
  auto x = graph.input("x", rlx::DType::F32, {rlx::Dim::symbol("n"), 3});
  graph.set_outputs({(x + x).named("twice"), exp(x)});
  write(folder / "g.rlx", graph.text());
  rlx::Array(std::vector<float>{1, 2, 3}, {1, 3}).save_npy(folder / "x.npy");
  auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> args{"run", folder / "g.rlx", "-o", folder / "out", "--device", "cpu"};
    args.insert(args.end(), more.begin(), more.end());
    return call_rlx(args);
  };
  Result r = run({"--input", "x=" + (folder / "x.npy"), "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(rlx::Array::load_npy(folder / "out/twice.npy").to_vector<float>(), (std::vector<float>{2, 4, 6}));
  EXPECT_EQ(Json::parse(r.out).at("outputs").size(), 2u);
  EXPECT_EQ(run({"--input", "x=random", "--dim", "n=4"}).status, 0);
  EXPECT_EQ(rlx::Array::load_npy(folder / "out/twice.npy").shape(), (rlx::Extents{4, 3}));
  expect_error(run({"--input", "y=random"}), "the graph has no input \"y\"; it has: x");
  expect_error(run({"--input", "x"}), "expected NAME=VALUE");
  expect_error(run({"--input", "x=random"}), "n");
  expect_error(run({}), "x");
  expect_error(run({"--input", "x=random", "--dim", "n=many"}), "expected NAME=SIZE");
  rlx::Array(rlx::DType::F32, {2, 2}).save_npy(folder / "x.npy");
  expect_error(run({"--input", "x=" + (folder / "x.npy")}), "[2,2]");
  Result inspected = call_rlx({"inspect", folder / "g.rlx", "--json"});
  ASSERT_EQ(inspected.status, 0) << inspected.err;
  EXPECT_EQ(Json::parse(inspected.out).at("ops").at("exp"), 1);
}

TEST(AboutTheProgram, VersionAndDevices) {
  Json version = Json::parse(call_rlx({"version", "-v", "--json"}).out);
  EXPECT_FALSE(version.at("version").get<std::string>().empty());
  EXPECT_TRUE(version.at("libraries").contains("oneDNN"));
  Json devices = Json::parse(call_rlx({"devices", "--json"}).out);
  EXPECT_NE(std::find(devices.at("devices").begin(), devices.at("devices").end(), "reference"),
            devices.at("devices").end());
}
