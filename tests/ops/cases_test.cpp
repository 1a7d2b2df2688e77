// The case table multiplied: values by dtype, gradients against central differences, bodies against rules, text.
#include "ops/cases.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "rewrite/rewrite.h"
#include "rlx/transform.h"

namespace rlx {
namespace {

class Cases : public testing::TestWithParam<std::size_t> {
 protected:
  const OpCase& row() const { return op_cases()[GetParam()]; }
};

Graph expanded(const Graph& graph) {
  return expand_bodies(graph, [](Node n) { return n.op().kind == Kind::Composite; }).graph;
}

void expect_near(const Array& got, const Array& want, double error, DType dtype) {
  ASSERT_EQ(got.shape(), want.shape());
  double most = 1;
  for (std::int64_t i = 0; i < got.size(); ++i) {
    double w = want.at(i), g = got.at(i);
    if (error > 0)
      EXPECT_NEAR(g, w, error * epsilon(dtype) * std::max(most, std::fabs(w))) << "element " << i;
    else
      EXPECT_EQ(g, w) << "element " << i;
  }
}

// The values of a narrow dtype as the wide one in which they are all exact.
std::vector<Array> widened(const OpCase& c, const std::vector<Array>& values, DType wide) {
  std::vector<Array> out = values;
  for (std::size_t i = 0; i < out.size(); ++i)
    if (c.inputs[i].fill == Fill::Value || c.inputs[i].fill == Fill::Distinct) out[i] = values[i].cast(wide);
  return out;
}

TEST_P(Cases, EveryDtypeAgreesWithTheWideEvaluation) {
  const OpCase& c = row();
  for (DType d : case_dtypes(c)) {
    SCOPED_TRACE(std::string(to_string(d)));
    Graph graph = case_graph(c, d);
    graph.verify();
    auto values = case_values(c, d);
    Array got = evaluate(graph.outputs()[0], case_feeds(values));
    EXPECT_EQ(got.type(), graph.outputs()[0].type());
    if (d == DType::Bool || c.over == Over::Fixed) continue;  // nothing wider
    DType wide = is_float(d) ? DType::F64 : DType::I64;
    Array want = evaluate(case_graph(c, wide).outputs()[0], case_feeds(widened(c, values, wide)));
    bool rounded = is_float(got.dtype()) && c.error > 0;
    expect_near(got, rounded ? want : want.cast(got.dtype()), c.error, d);
  }
}

TEST_P(Cases, TheBodyIsTheMeaning) {
  const OpCase& c = row();
  for (DType d : case_dtypes(c)) {
    Graph graph = case_graph(c, d);
    Feeds feeds = case_feeds(case_values(c, d));
    Graph body = expanded(graph);
    body.verify();
    EXPECT_TRUE(identical(evaluate(body.outputs()[0], feeds), evaluate(graph.outputs()[0], feeds))) << to_string(d);
  }
}

TEST_P(Cases, TextReadsBack) {
  const OpCase& c = row();
  for (DType d : case_dtypes(c)) {
    Graph graph = case_graph(c, d);
    std::string text = graph.text();
    Graph read = Graph::parse(text);
    EXPECT_EQ(read.text(), text);
    Feeds feeds = case_feeds(case_values(c, d));
    EXPECT_TRUE(identical(evaluate(read.outputs()[0], feeds), evaluate(graph.outputs()[0], feeds))) << to_string(d);
  }
}

// ---------------------------------------------------------------------------------------------- gradients

// The leaves that are differentiated.
std::vector<std::string> differentiable(const OpCase& c) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < c.inputs.size(); ++i)
    if (c.inputs[i].fill == Fill::Value || c.inputs[i].fill == Fill::Distinct) out.push_back("x" + std::to_string(i));
  return out;
}

// Weights that no two elements share, so that a gradient in the wrong place shows.
Array weights(const Extents& shape) {
  Array w(DType::F64, shape);
  for (std::int64_t i = 0; i < w.size(); ++i) w.values<double>()[std::size_t(i)] = 0.5 + double((i * 7 + 3) % 16) / 16;
  return w;
}

// A graph whose loss is the weighted sum of the case's output.
Graph loss_graph(const OpCase& c, DType d) {
  Graph graph = case_graph(c, d);
  Node y = graph.outputs()[0];
  Node w = graph.constant(weights(to_extents(y.shape())).cast(y.dtype()));
  Axes all;
  for (int i = 0; i < y.rank(); ++i) all.push_back(i);
  graph.set_outputs({sum(y * w, all)});
  return graph;
}

std::vector<Array> gradients(const Graph& loss, const std::vector<std::string>& wrt, Feeds feeds) {
  Graph back = grad_with_loss(loss, wrt);
  back.verify();
  feeds.emplace("d_output", Array::scalar(1, back.outputs()[0].dtype()));
  std::vector<Array> out = evaluate(back.outputs(), feeds);
  out.erase(out.begin());
  std::vector<Array> body = evaluate(expanded(back).outputs(), feeds);
  for (std::size_t i = 0; i < out.size(); ++i)
    EXPECT_TRUE(identical(out[i], body[i + 1])) << "the bodies of the gradient differ from it";
  return out;
}

// d loss / d x by central differences.
Array differences(Node loss, const std::string& x, const Feeds& feeds) {
  Array at = feeds.at(x).clone(), out(DType::F64, at.shape());
  Feeds moved = feeds;
  moved[x] = at;
  constexpr double kStep = 1e-5;
  for (std::size_t i = 0; i < std::size_t(at.size()); ++i) {
    double& v = at.values<double>()[i];
    double middle = v;
    v = middle + kStep;
    double above = evaluate(loss, moved).at(0);
    v = middle - kStep;
    double below = evaluate(loss, moved).at(0);
    v = middle;
    out.values<double>()[i] = (above - below) / (2 * kStep);
  }
  return out;
}

void expect_gradients(const std::vector<Array>& got, const std::vector<Array>& want, double tolerance) {
  for (std::size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(got[k].shape(), want[k].shape());
    double most = 1;
    for (std::int64_t i = 0; i < want[k].size(); ++i) most = std::max(most, std::fabs(want[k].at(i)));
    for (std::int64_t i = 0; i < got[k].size(); ++i)
      EXPECT_NEAR(got[k].at(i), want[k].at(i), tolerance * most) << "element " << i << " of gradient " << k;
  }
}

TEST_P(Cases, GradientsAreTheDerivative) {
  const OpCase& c = row();
  if (c.gradient != Gradient::Checked) return;
  auto wrt = differentiable(c);
  for (DType d : case_dtypes(c)) {
    if (!is_float(d)) continue;
    SCOPED_TRACE(std::string(to_string(d)));
    auto values = case_values(c, d);
    Graph wide = loss_graph(c, DType::F64);
    Feeds feeds = case_feeds(widened(c, values, DType::F64));
    std::vector<Array> want;
    for (auto& x : wrt) want.push_back(differences(wide.outputs()[0], x, feeds));
    expect_gradients(gradients(wide, wrt, feeds), want, 1e-6);
    expect_gradients(gradients(expanded(wide), wrt, feeds), want, 1e-6);
    if (d == DType::F64) continue;
    auto narrow = gradients(loss_graph(c, d), wrt, case_feeds(values));
    for (auto& g : narrow) EXPECT_EQ(g.dtype(), d);
    expect_gradients(narrow, want, c.gradient_error * epsilon(d));
  }
}

TEST_P(Cases, SecondDerivatives) {
  const OpCase& c = row();
  if (c.gradient != Gradient::Checked) return;
  auto wrt = differentiable(c);
  Feeds feeds = case_feeds(case_values(c, DType::F64));
  Graph graph = loss_graph(c, DType::F64);
  // The loss of the second sweep is the weighted sum of the first one's gradients.
  Nodes leaves;
  for (auto& x : wrt) leaves.push_back(graph.find_leaf(x));
  Node total = none;
  for (auto& g : grad(graph.outputs()[0], leaves)) {
    Axes all;
    for (int i = 0; i < g.rank(); ++i) all.push_back(i);
    Node term = sum(g * graph.constant(weights(to_extents(g.shape()))), all);
    total = total ? total + term : term;
  }
  graph.set_outputs({total});
  std::vector<Array> want;
  for (auto& x : wrt) want.push_back(differences(total, x, feeds));
  expect_gradients(gradients(graph, wrt, feeds), want, 1e-5);
}

std::string case_name(const testing::TestParamInfo<std::size_t>& info) {
  std::string out = op_cases()[info.param].name() + "_" + std::to_string(info.param);
  for (char& ch : out)
    if (!std::isalnum(static_cast<unsigned char>(ch))) ch = '_';
  return out;
}
INSTANTIATE_TEST_SUITE_P(Ops, Cases, testing::Range<std::size_t>(0, op_cases().size()), case_name);

// ---------------------------------------------------------------------------------------------- symbolic sizes

// The case with every size `n` of its tensors as a symbol, or nothing where it names that size itself.
std::optional<Graph> symbolic_graph(const OpCase& c, std::int64_t n) {
  Graph graph;
  Nodes in;
  bool any = false;
  for (auto& value : case_values(c, DType::F64)) {
    Shape shape = to_shape(value.shape());
    for (auto& d : shape)
      if (d == Dim(n)) d = Dim::symbol("n"), any = true;
    in.push_back(graph.input("x" + std::to_string(in.size()), value.dtype(), shape));
  }
  if (!any) return {};
  try {
    graph.set_outputs({c.build(in, graph)});
  } catch (const UserError&) {
    return {};  // a literal size met the symbol
  }
  return graph;
}

TEST(CaseTable, SymbolicSizesGiveTheSameValuesAndGradients) {
  int built = 0;
  for (auto& c : op_cases())
    for (std::int64_t n : {2, 3, 4, 5}) {
      if (c.over == Over::Int || c.over == Over::IntBool || c.over == Over::Bool) continue;
      SCOPED_TRACE(c.name() + ", size " + std::to_string(n));
      auto symbolic = symbolic_graph(c, n);
      if (!symbolic) continue;
      ++built;
      symbolic->verify();
      EXPECT_EQ(Graph::parse(symbolic->text()).text(), symbolic->text());
      Graph fixed = case_graph(c, DType::F64);
      Feeds feeds = case_feeds(case_values(c, DType::F64));
      Array want = evaluate(fixed.outputs()[0], feeds);
      EXPECT_TRUE(identical(evaluate(symbolic->outputs()[0], feeds), want));
      EXPECT_TRUE(identical(evaluate(expanded(*symbolic).outputs()[0], feeds), want));
      if (c.gradient != Gradient::Checked) continue;
      Array w = weights(want.shape()).cast(want.dtype());
      feeds.emplace("d_output", w);
      auto wrt = differentiable(c);
      auto of = [&](const Graph& g) { return evaluate(grad_with_loss(g, wrt).outputs(), feeds); };
      auto got = of(*symbolic), expected = of(fixed);
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(identical(got[i], expected[i])) << "gradient " << i;
    }
  EXPECT_GT(built, 200);
}

TEST(CaseTable, EveryOpHasACase) {
  std::set<std::string> covered;
  for (auto& c : op_cases()) covered.insert(c.op);
  for (const OpDef* op : builtin_ops())
    EXPECT_TRUE(covered.contains(std::string(op->name))) << "no case for " << op->name;
  for (auto& c : op_cases()) EXPECT_TRUE(find_op(c.op)) << c.op;
}

TEST(CaseTable, ElementwiseOpsTakeEmptyTensorsAndScalars) {
  for (auto& row : op_cases()) {
    const OpDef& op = *find_op(row.op);
    bool composed = op.kind == Kind::Composite && op.attrs == &kAttrsInfo<NoAttrs> && op.max_inputs <= 3;
    if (op.kind != Kind::Elementwise && (!composed || op.name == "scaled_quant_tensor_scale")) continue;  // a reduction
    for (const Extents& shape : {Extents{}, Extents{0, 3}}) {
      OpCase c = row;
      for (auto& in : c.inputs) in.shape = shape;
      DType d = case_dtypes(c)[0];
      Graph graph = case_graph(c, d);
      Array value = evaluate(graph.outputs()[0], case_feeds(case_values(c, d)));
      EXPECT_EQ(value.shape(), shape) << c.name();
      if (!is_float(value.dtype()) || row.gradient != Gradient::Checked) continue;
      Node g = grad(graph.outputs()[0], {graph.find_leaf(differentiable(c)[0])})[0];
      EXPECT_EQ(evaluate(g, case_feeds(case_values(c, d))).shape(), shape) << c.name();
    }
  }
}

}  // namespace
}  // namespace rlx
