// Compile, set, run; and one error for each way to get it wrong.
#include "rlx/session.h"

#include <gtest/gtest.h>

#include "message_of.h"
#include "rlx/ops.h"

using namespace rlx;
namespace {

struct Counter {
  Graph graph;
  Counter() {
    Node x = graph.input("x", DType::F32, {Dim::symbol("n")});
    Node total = graph.param("total", DType::F32, {});
    graph.set_outputs({total + sum(x, {0}), x * 2});
  }
};

TEST(Session, UpdatesAreKeptBetweenRuns) {
  for (auto& device : devices()) {
    if (device.name == "null") continue;
    auto compiled = Session(device).compile(Counter().graph, {.name = "counter", .updates = {{"total", 0}}});
    compiled.set_param("total", std::vector<float>{1});
    Array x(std::vector<float>{1, 2, 3}, {3});
    EXPECT_EQ(compiled.run({{"x", x}})[0].at(0), 7) << device.name;
    EXPECT_EQ(compiled.run_read_outputs({{"x", x}}, {1})[0].at(2), 6) << device.name;
    EXPECT_EQ(compiled.param("total").at(0), 13) << device.name;
  }
}

TEST(Session, TheNullDeviceCompilesAndRunsNothing) {
  auto c = Session(Device::null()).compile(Counter().graph, {.name = "counter"});
  c.set_param("total", std::vector<float>{1});
  EXPECT_EQ(c.param("total").at(0), 1);
  EXPECT_THROW(c.run({{"x", Array(DType::F32, {2})}}), Unsupported);
}

TEST(Session, ErrorsSayWhatWasGivenAndExpected) {
  auto c = Session(Device::reference()).compile(Counter().graph, {.name = "counter"});
  EXPECT_EQ(message_of([&] { c.set_param("totl", std::vector<float>{1}); }), "counter: there is no param \"totl\"; it has \"total\"");
  EXPECT_EQ(message_of([&] { c.set_param("total", std::vector<float>{1, 2}); }), "counter: param \"total\": got 8 bytes (2 elements), expected 4 (f32[])");
  EXPECT_EQ(message_of([&] { c.set_param_typed("total", {}, DType::F64); }), "counter: param \"total\": got f64, expected f32[]");
  EXPECT_EQ(message_of([&] { c.set_param("total", Array(DType::F32, {2})); }), "counter: param \"total\": got f32[2], expected f32[]");
  EXPECT_EQ(message_of([&] { c.run({{"x", Array(DType::F32, {2})}}); }), "counter: param \"total\" f32[] is not set");
  EXPECT_EQ(message_of([&] { c.param("total"); }), "counter: param \"total\" is not set");
  c.set_param("total", std::vector<float>{1});
  EXPECT_EQ(message_of([&] { c.run({}); }), "counter: input \"x\" f32[n] is missing");
  EXPECT_EQ(message_of([&] { c.run({{"x", Array(DType::I32, {2})}}); }), "counter: input \"x\": got i32[2], expected f32[n]");
  EXPECT_EQ(message_of([&] { c.run({{"x", Array(DType::F32, {2})}, {"y", Array(DType::F32, {2})}}); }), "counter: there is no input \"y\"; it has \"x\"");
  EXPECT_EQ(message_of([&] { c.run_read_outputs({{"x", Array(DType::F32, {2})}}, {5}); }), "counter: there is no output 5, the graph has 2");
  EXPECT_EQ(message_of([&] { Session(Device{"tpu"}); }).substr(0, 30), "there is no device \"tpu\"; this");
  EXPECT_EQ(message_of([&] { Session(Device::reference()).compile(Counter().graph, {.name = "g", .updates = {{"total", 1}}}); }),
            "g: the update of \"total\" is f32[n], the param is f32[]");
}

}  // namespace
