// The stored cases and how one is replayed.
#include "ops/golden/golden.h"

#include <cmath>
#include <map>

#include "ops/values.h"
#include "rlx/session.h"

namespace rlx {
namespace {

struct Stored {
  DType dtype;
  Extents shape;
  std::vector<double> values;
};
struct Case {
  std::size_t inputs;
  std::vector<Stored> arrays;  // the inputs, the output, and, where there are gradients, its cotangent and theirs
};

const Case& stored(const std::string& name) {
  static const std::map<std::string, Case> cases = {
#include "ops/golden/golden.inc"
  };
  return cases.at(name);
}

Array array_of(const Stored& s, DType dtype) {
  return Array(s.values, s.shape).cast(is_float(s.dtype) ? dtype : s.dtype);
}

void expect_close(const Array& got, const Stored& expected, double relative, const std::string& what) {
  ASSERT_EQ(got.shape(), expected.shape) << what;
  double largest = 1;
  for (double v : expected.values)
    if (std::isfinite(v)) largest = std::max(largest, std::fabs(v));
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    double v = got.at(std::int64_t(i)), e = expected.values[i];
    if (std::isnan(e))
      EXPECT_TRUE(std::isnan(v)) << what << " element " << i << ": " << v;
    else if (std::isinf(e))
      EXPECT_EQ(v, e) << what << " element " << i;
    else
      EXPECT_NEAR(v, e, relative * largest) << what << " element " << i;
  }
}

struct How {
  Device device;
  DType dtype;
  double tolerance;
  bool expanded = false;  // the body in the op's place
};

void replay(const Case& c, const How& how, const std::function<Node(const Nodes&)>& build) {
  Graph graph;
  Nodes in, wrt;
  ArrayMap feeds;
  for (std::size_t i = 0; i < c.inputs; ++i) {
    Array value = array_of(c.arrays[i], how.dtype);
    in.push_back(graph.input("x" + std::to_string(i), value.type()));
    feeds.emplace(in.back().name(), value);
    if (is_float(value.dtype())) wrt.push_back(in.back());
  }
  Node y = build(in);
  if (how.expanded) {
    if (!y.op().body) return;
    y = y.op().body({y.inputs(), y.attrs(), y.op()});
  }
  Nodes outputs{y};
  if (c.arrays.size() > c.inputs + 1)
    for (Node d : grad(y, wrt, graph.constant(array_of(c.arrays[c.inputs + 1], y.dtype())))) outputs.push_back(d);
  graph.set_outputs(outputs);
  graph.verify();
  std::vector<Array> got = Session(how.device).compile(graph).run(feeds);
  std::string what = how.device.name + " " + std::string(to_string(how.dtype)) + (how.expanded ? " body" : "");
  expect_close(got[0], c.arrays[c.inputs], how.tolerance, what + " value");
  for (std::size_t i = 1; i < got.size(); ++i)
    expect_close(got[i], c.arrays[c.inputs + 1 + i], how.tolerance, what + " gradient " + std::to_string(i - 1));
}

}  // namespace

void check_golden(const std::string& name, const std::function<Node(const Nodes&)>& build) {
  SCOPED_TRACE(name);
  const Case& c = stored(name);
  replay(c, {Device::reference(), DType::F64, 4e-12}, build);
  replay(c, {Device::reference(), DType::F64, 4e-12, true}, build);
  replay(c, {Device::reference(), DType::F32, 1e-5}, build);
  replay(c, {Device::reference(), DType::BF16, 2e-2}, build);
  replay(c, {Device::cpu(), DType::F64, 4e-12}, build);
  replay(c, {Device::cpu(), DType::F32, 1e-5}, build);
  replay(c, {Device::cpu(), DType::BF16, 2e-2}, build);
}

}  // namespace rlx
