// Gathers and scatters on the cpu device: compiled for every dtype of indices, with the interpreter's values and
// errors.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "message_of.h"
#include "ops/eval.h"
#include "rlx/ops.h"
#include "rlx/session.h"

using namespace rlx;

namespace {

const DType kIndexDTypes[] = {DType::I64, DType::I32, DType::I16, DType::I8,
                              DType::U64, DType::U32, DType::U16, DType::U8};

Array numbers(DType dtype, Extents shape) {
  Array out(DType::F64, std::move(shape));
  for (std::int64_t i = 0; i < out.size(); ++i)
    out.values<double>()[std::size_t(i)] = std::round(9 * std::sin(0.7 * double(i)));
  return out.cast(dtype);
}
// From -n (or 0) to n - 1.
Array places(DType dtype, Extents shape, std::int64_t n) {
  Array out(DType::I64, std::move(shape));
  for (std::int64_t i = 0; i < out.size(); ++i)
    out.values<std::int64_t>()[std::size_t(i)] = (i * 7 + i / 5) % n - (is_signed_int(dtype) && i % 3 == 0 ? n : 0);
  return out.cast(dtype);
}

// The output on the cpu device, which must not use the interpreter, after it was compared with the interpreter's.
void expect_compiled(const Graph& graph, const ArrayMap& inputs) {
  auto compiled = Session(Device::cpu()).compile(graph);
  Array got = compiled.run(inputs)[0];
  EXPECT_NE(compiled.report().find("(0 interpreted)"), std::string::npos) << compiled.report();
  EXPECT_TRUE(identical(got, evaluate(graph.outputs()[0], {inputs.begin(), inputs.end()}))) << graph.text();
}

std::string error_of(const Graph& graph, const ArrayMap& inputs) {
  return message_of([&] { Session(Device::cpu()).compile(graph).run(inputs); });
}

}  // namespace

TEST(CpuIndex, GathersEveryDtypeByEveryDtypeAlongEveryAxis) {
  for (DType index : kIndexDTypes)
    for (DType dtype : {DType::F64, DType::F32, DType::BF16, DType::U8, DType::I16, DType::Bool})
      for (int axis : {0, 1, -1}) {
        Graph g;
        Array x = numbers(dtype, {5, 6, 7}),
              at = places(index, {3, 4}, x.shape()[std::size_t(axis < 0 ? axis + 3 : axis)]);
        g.set_outputs({gather(g.input("x", x.type()), g.input("at", at.type()), axis)});
        expect_compiled(g, {{"x", x}, {"at", at}});
      }
}

TEST(CpuIndex, GathersRowsOfEveryWidth) {
  for (std::int64_t width : {1, 2, 3, 4, 7, 8, 9, 64, 1000})
    for (std::int64_t many : {1, 5000}) {
      Graph g;
      Array x = numbers(DType::F32, {200, width}), at = places(DType::U8, {many}, 200);
      g.set_outputs({gather(g.input("x", x.type()), g.input("at", at.type()), 0)});
      expect_compiled(g, {{"x", x}, {"at", at}});
    }
}

// Whole numbers, so that every order of a sum gives the same; few and many rows, narrow and wide ones.
TEST(CpuIndex, ScattersByEveryDtype) {
  for (DType index : kIndexDTypes)
    for (std::int64_t width : {1, 2, 3, 4, 8, 16, 64, 65, 130})
      for (std::int64_t many : {1, 300, 20000})
        for (ScatterMode mode : {ScatterMode::Set, ScatterMode::Add}) {
          if (many * width > 400000) continue;
          Graph g;
          Array x = numbers(DType::F32, {100, width}), at = places(index, {many}, 100),
                more = numbers(DType::F32, {many, width});
          g.set_outputs(
              {scatter(g.input("x", x.type()), g.input("at", at.type()), g.input("more", more.type()), 0, mode)});
          expect_compiled(g, {{"x", x}, {"at", at}, {"more", more}});
        }
}

TEST(CpuIndex, NamesTheFirstIndexOutOfRange) {
  for (DType index : kIndexDTypes) {
    Graph g;
    g.set_origin("model.py:3");
    Node x = g.input("x", DType::F32, {4, 2}), at = g.input("at", index, {6});
    g.set_outputs({gather(x, at, 0).named("rows")});
    Array values = numbers(DType::F32, {4, 2}), places(index, {6});
    auto set = [&](std::int64_t i, double value) {
      std::memcpy(places.bytes() + std::size_t(i) * size_of(index), Array::scalar(value, index).bytes(),
                  size_of(index));
    };
    set(3, 4), set(5, 100);
    std::string least = is_signed_int(index) ? "-4" : "0", message = error_of(g, {{"x", values}, {"at", places}});
    EXPECT_NE(message.find("[gather] index 4 is outside [" + least + ", 4)"), std::string::npos) << message;
    EXPECT_NE(message.find("\"rows\""), std::string::npos) << message;
    EXPECT_NE(message.find("model.py:3"), std::string::npos) << message;
    Graph s;
    s.set_outputs({scatter(s.input("x", DType::F32, {4, 2}), s.input("at", index, {6}),
                           s.input("u", DType::F32, {6, 2}), 0, ScatterMode::Add)});
    message = error_of(s, {{"x", values}, {"at", places}, {"u", numbers(DType::F32, {6, 2})}});
    EXPECT_NE(message.find("[scatter] index 4 is outside [" + least + ", 4)"), std::string::npos) << message;
    if (!is_signed_int(index)) continue;
    set(1, -5);
    message = error_of(g, {{"x", values}, {"at", places}});
    EXPECT_NE(message.find("index -5 is outside [-4, 4)"), std::string::npos) << message;
  }
  Graph g;  // far beyond what a signed number holds
  g.set_outputs({gather(g.input("x", DType::F32, {4, 2}), g.input("at", DType::U64, {1}), 0)});
  std::string message = error_of(
      g, {{"x", numbers(DType::F32, {4, 2})}, {"at", Array(std::vector<std::uint64_t>{~std::uint64_t(0)}, {1})}});
  EXPECT_NE(message.find("index 18446744073709551615 is outside [0, 4)"), std::string::npos) << message;
}
