// The stored cases and how one is replayed.
#include <cmath>
#include <map>

#include "ops/values.h"
#include "ops/golden/golden.h"

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

Array array_of(const Stored& s, DType dtype) { return Array(s.values, s.shape).cast(is_float(s.dtype) ? dtype : s.dtype); }

void expect_close(const Array& got, const Stored& expected, double relative, const std::string& what) {
  ASSERT_EQ(got.shape(), expected.shape) << what;
  double largest = 1;
  for (double v : expected.values)
    if (std::isfinite(v)) largest = std::max(largest, std::fabs(v));
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    double v = got.at(std::int64_t(i)), e = expected.values[i];
    if (std::isnan(e)) EXPECT_TRUE(std::isnan(v)) << what << " element " << i << ": " << v;
    else if (std::isinf(e)) EXPECT_EQ(v, e) << what << " element " << i;
    else EXPECT_NEAR(v, e, relative * largest) << what << " element " << i;
  }
}

void replay(const Case& c, DType dtype, double tolerance, bool expanded, const std::function<Node(const Nodes&)>& build) {
  Graph graph;
  Nodes in, wrt;
  Feeds feeds;
  for (std::size_t i = 0; i < c.inputs; ++i) {
    Array value = array_of(c.arrays[i], dtype);
    in.push_back(graph.input("x" + std::to_string(i), value.type()));
    feeds.emplace(in.back().name(), value);
    if (is_float(value.dtype())) wrt.push_back(in.back());
  }
  Node y = build(in);
  if (expanded) {
    if (!y.op().body) return;
    y = y.op().body({y.inputs(), y.attrs(), y.op()});
  }
  std::string what = std::string(to_string(dtype)) + (expanded ? " body" : "");
  expect_close(evaluate(y, feeds), c.arrays[c.inputs], tolerance, what + " value");
  if (c.arrays.size() == c.inputs + 1) return;
  Nodes grads = grad(y, wrt, graph.constant(array_of(c.arrays[c.inputs + 1], y.dtype())));
  graph.verify();
  for (std::size_t i = 0; i < grads.size(); ++i)
    expect_close(evaluate(grads[i], feeds), c.arrays[c.inputs + 2 + i], tolerance, what + " gradient " + std::to_string(i));
}

}  // namespace

void check_golden(const std::string& name, const std::function<Node(const Nodes&)>& build) {
  SCOPED_TRACE(name);
  const Case& c = stored(name);
  replay(c, DType::F64, 4e-12, false, build);
  replay(c, DType::F64, 4e-12, true, build);
  replay(c, DType::F32, 1e-5, false, build);
  replay(c, DType::BF16, 2e-2, false, build);
}

}  // namespace rlx
