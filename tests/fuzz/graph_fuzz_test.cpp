// Random small graphs: the CPU device against the interpreter, and gradients against central differences. The seeds are
// fixed; a failure prints its seed and the graph. RLX_FUZZ_SEED and RLX_FUZZ_COUNT try others.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "ops/eval.h"
#include "rlx/ops.h"
#include "rlx/session.h"
#include "rlx/transform.h"

using namespace rlx;

namespace {

std::uint64_t number_from(const char* variable, std::uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : fallback;
}
std::uint64_t first_seed() { return number_from("RLX_FUZZ_SEED", 0); }
std::uint64_t seeds(std::uint64_t usual) { return number_from("RLX_FUZZ_COUNT", usual); }

class Fuzzer {
 public:
  Fuzzer(std::uint64_t seed, bool smooth, std::vector<DType> dtypes)
      : random_(seed), smooth_(smooth), dtypes_(std::move(dtypes)) {}

  Graph graph;
  bool symbolic = false;  // axes of 4 are of size `n`
  ArrayMap feeds;
  Nodes leaves;

  void build(int ops) {
    for (int i = 0, n = 2 + int(pick(3)); i < n; ++i) leaf();
    for (int i = 0; i < ops; ++i) {
      try {
        op();
      } catch (const UserError&) {  // shapes or dtypes that do not go together
      }
    }
    Nodes outputs;
    for (int i = 0; i < 3; ++i)
      outputs.push_back(nodes_[nodes_.size() - 1 - pick(std::min<std::size_t>(nodes_.size(), 6))].node);
    graph.set_outputs(outputs);
  }
  Array values(DType dtype, const Extents& shape) {
    Array out(DType::F64, shape);
    for (double& v : out.values<double>()) v = is_float(dtype) ? uniform(-2, 2) : std::floor(uniform(-9, 9));
    return out.cast(dtype);
  }
  // The leaf's value where n is this.
  Array value_at(Node leaf, std::int64_t n) { return values(leaf.dtype(), evaluate(leaf.shape(), {{"n", n}})); }
  std::size_t pick(std::size_t n) { return std::size_t(random_() % n); }
  double uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }

 private:
  struct Value {
    Node node;
    bool exact;  // every device gives the same bits, so that it may be compared or rounded
  };

  void leaf() {
    static const std::vector<Extents> kShapes = {{},        {1},       {5},  {3, 4},  {1, 4}, {3, 1},
                                                 {2, 3, 4}, {2, 1, 4}, {17}, {4, 33}, {0, 4}};
    Extents shape = kShapes[pick(kShapes.size() - smooth_)];  // the last has no elements: its max is infinite
    DType dtype = dtypes_[pick(dtypes_.size())];
    std::string name = "x" + std::to_string(leaves.size());
    Shape type = to_shape(shape);
    for (Dim& d : type)
      if (symbolic && d == Dim(4)) d = Dim::symbol("n");
    Node node = symbolic || pick(3) ? graph.input(name, dtype, type) : graph.param(name, dtype, type);
    feeds[name] = values(dtype, shape);
    leaves.push_back(node);
    nodes_.push_back({node, true});
  }

  Value any() { return nodes_[nodes_.size() - 1 - pick(std::min<std::size_t>(nodes_.size(), 8))]; }
  Value a_float() {
    for (int i = 0; i < 20; ++i)
      if (auto v = any(); is_float(v.node.dtype())) return v;
    throw UserError("none");
  }
  Value exact() {
    for (int i = 0; i < 20; ++i)
      if (auto v = any(); v.exact) return v;
    throw UserError("none");
  }
  int axis_of(Node x) {
    if (x.rank() == 0) throw UserError("a scalar");
    return int(pick(std::size_t(x.rank())));
  }
  Axes axes_of(Node x) {
    Axes out;
    for (int i = 0; i < x.rank(); ++i)
      if (pick(2)) out.push_back(i);
    return out;
  }
  static bool is_large(Node x, std::int64_t most) {
    Dim n = count(x.shape());
    return n.is_number() && n.number() > most;
  }
  void add(Node node, bool exact) { nodes_.push_back({node, exact}); }

  void op() {
    switch (pick(smooth_ ? 9 : 11)) {
      case 0:
      case 1: return unary();
      case 2:
      case 3:
      case 4: return binary();
      case 5: return reduce();
      case 6: return movement();
      case 7: return contract();
      case 8: return composite();
      case 9: return discontinuous();
      default: return convert();
    }
  }

  void unary() {
    Value v = a_float();
    Node x = v.node;
    switch (pick(16)) {
      case 0: return add(-x, v.exact);
      case 1: return add(abs(x), v.exact);
      case 2: return add(exp(tanh(x)), false);
      case 3: return add(log(1 + x * x), false);
      case 4: return add(sqrt(0.5 + abs(x)), false);
      case 5: return add(rsqrt(1 + x * x), false);
      case 6: return add(sin(3 * tanh(x)), false);
      case 7: return add(cos(3 * tanh(x)), false);
      case 8: return add(tanh(x), false);
      case 9: return add(sigmoid(x), false);
      case 10: return add(erf(x), false);
      case 11: return add(relu(x), v.exact);
      case 12: return add(silu(x), false);
      case 13: return add(gelu(x), false);
      case 14: return add(softplus(x), false);
      default: return add(clamp(x, -1.25, 1.5), v.exact);
    }
  }

  void binary() {
    Value a = any(), b = any();
    bool exact = a.exact && b.exact;
    bool ints = !is_float(a.node.dtype()) && !is_float(b.node.dtype());
    switch (pick(ints ? 5 : 8)) {
      case 0: return add(a.node + b.node, exact && ints);
      case 1: return add(a.node - b.node, exact && ints);
      case 2: return add(ints ? a.node * b.node : tanh(a.node) * b.node, exact && ints);
      case 3: return add(maximum(a.node, b.node), exact && a.node.dtype() == b.node.dtype());
      case 4: return add(minimum(a.node, b.node), exact && a.node.dtype() == b.node.dtype());
      case 5: return add(a.node / (1 + abs(b.node)), false);
      case 6: return add(0.25 * a.node + b.node * 3, false);
      default: return add(square(sigmoid(a.node)) - b.node, false);
    }
  }

  void reduce() {
    Value v = a_float();
    Axes axes = axes_of(v.node);
    bool keep = pick(2);
    switch (pick(6)) {
      case 0: return add(sum(v.node, axes, keep) * 0.25, false);
      case 1: return add(mean(v.node, axes, keep), false);
      case 2: return add(max(v.node, axes, keep), false);
      case 3: return add(min(v.node, axes, keep), false);
      case 4: return add(cumsum(v.node, axis_of(v.node), pick(2), pick(2)) * 0.25, false);
      default: return add(sum(v.node * sigmoid(v.node), axes, keep) * 0.25, false);
    }
  }

  void movement() {
    Value v = any();
    Node x = v.node;
    int rank = x.rank();
    switch (pick(7)) {
      case 0: {
        Axes perm;
        for (int i = 0; i < rank; ++i) perm.push_back(i);
        std::shuffle(perm.begin(), perm.end(), random_);
        return add(transpose(x, perm), v.exact);
      }
      case 1: return add(reshape(x, {count(x.shape())}), v.exact);
      case 2: return add(flip(x, axes_of(x)), v.exact);
      case 3: {
        Shape starts, sizes;
        Extents steps;
        for (auto& d : x.shape()) {
          std::int64_t n = d.number(), step = pick(4) ? 1 : pick(2) ? -1 : 2;
          std::int64_t start = n ? std::int64_t(pick(std::size_t(n))) : 0;
          std::int64_t room = n == 0 ? 0 : step > 0 ? (n - start - 1) / step + 1 : start + 1;
          starts.push_back(start), steps.push_back(step),
              sizes.push_back(room ? room - std::int64_t(pick(std::size_t(room))) : 0);
        }
        return add(slice(x, starts, sizes, steps), v.exact);
      }
      case 4: {
        Shape low, high;
        for (int i = 0; i < rank; ++i) low.push_back(int(pick(3))), high.push_back(int(pick(2)));
        return add(pad(x, low, high, 1), v.exact);
      }
      case 5: return add(concat({x, x, flip(x, {0})}, axis_of(x)), v.exact);
      default: {
        Shape shape = x.shape();
        shape.insert(shape.begin(), 2);
        return add(expand(x, shape), v.exact);
      }
    }
  }

  void contract() {
    Value a = a_float(), b = a_float();
    Node x = a.node, y = b.node;
    if (is_large(x, 600) || is_large(y, 600)) return;
    if (y.rank() >= 2 && pick(2)) {
      Axes perm;
      for (int i = 0; i < y.rank(); ++i) perm.push_back(i);
      std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
      y = transpose(y, perm);
    }
    add(matmul(x, y) * 0.25, false);
  }

  void composite() {
    Value v = a_float();
    Node x = v.node;
    switch (pick(9)) {
      case 0: return add(softmax(x, axis_of(x)), false);
      case 1: return add(log_softmax(x, axis_of(x)), false);
      case 2: return add(logsumexp(x, axis_of(x)), false);
      case 3: {
        int axis = axis_of(x);
        return add(gather(x, places(x.dim(axis).number(), {4}), axis), v.exact);
      }
      case 4: {
        if (x.rank() == 0) return;
        Node gamma = expand(graph.constant(1.5, x.dtype()), {x.dim(-1)});
        return add(pick(2) ? rms_norm(x, gamma, 1e-3) : layer_norm(x, gamma, none, -1, 1e-3), false);
      }
      case 5: return scattered(x);
      case 6: return convolved(x);
      case 7: return attended(x);
      default: {
        Node planes = as_planes(x, 1);
        PoolAttrs pool{.kernel = {2}, .strides = {1 + int(pick(2))}, .low = {}, .high = {}, .dilation = {}};
        return add(pick(2) ? max_pool(planes, pool) : avg_pool(planes, pool), false);
      }
    }
  }

  // Indices of an axis of n, some counted from the end.
  Node places(std::int64_t n, Extents shape) {
    if (n == 0) throw UserError("no place");
    std::vector<std::int64_t> at;
    for (std::int64_t i = 0; i < count(shape); ++i) at.push_back(std::int64_t(pick(std::size_t(2 * n))) - n);
    return graph.constant(Array(at, std::move(shape)));
  }
  // The elements as [1, channels, n] or [channels, n, n'] with some repeated.
  Node as_planes(Node x, int batch) {
    std::int64_t n = count(x.shape()).number();
    if (n == 0 || n > 200) throw UserError("too few or many");
    return expand(reshape(x, {1, 1, n}), {batch, 2, n});
  }

  void scattered(Node x) {
    int axis = axis_of(x);
    std::int64_t n = x.dim(axis).number();
    Shape shape = x.shape();
    shape[std::size_t(axis)] = 3;
    Node updates = expand(reshape(sum(x, {axis}, true),
                                  [&] {
                                    Shape s = shape;
                                    s[std::size_t(axis)] = 1;
                                    return s;
                                  }()),
                          shape);
    add(scatter(x, places(n, {3}), updates, axis, pick(2) ? ScatterMode::Add : ScatterMode::Set), false);
  }

  void convolved(Node x) {
    Node planes = as_planes(x, 1 + int(pick(2)));
    if (planes.dim(-1).number() < 3) return;
    Node w = reshape(slice(planes, {0, 0, 0}, {1, 2, 3}, {1, 1, 1}), {1, 2, 3});
    ConvAttrs attrs{.strides = {1 + int(pick(2))}, .low = {int(pick(3))}, .high = {int(pick(2))}, .dilation = {}};
    add(conv(planes, tanh(concat({w, flip(w, {2})}, 0)), attrs) * 0.25, false);
  }

  void attended(Node x) {
    if (x.rank() < 2 || is_large(x, 300)) return;
    Node rows = reshape(x, {1, 1, floor_div(count(x.shape()), x.dim(-1)), x.dim(-1)});
    Node q = concat({rows, -rows}, 1);
    AttentionAttrs attrs{.mask = pick(2) ? AttentionMask::Causal : AttentionMask::None, .scale = 0.5};
    add(attention(q, rows, tanh(rows), attrs), false);
  }

  void discontinuous() {
    Value v = exact(), w = exact();
    Node x = v.node;
    switch (pick(6)) {
      case 0: return is_float(x.dtype()) ? add(round(x), true) : add(-x, true);
      case 1: return is_float(x.dtype()) ? add(floor(x * 2), true) : add(abs(x), true);
      case 2: return add(where(x > w.node, x, w.node), x.dtype() == w.node.dtype());
      case 3: return add(where(x == w.node, any().node, x), false);
      case 4: return add(argmax(x, axis_of(x)), true);
      default: return add(cast(x > 0.25, DType::I32) + 1, true);
    }
  }

  void convert() {
    Value v = any();
    DType to = dtypes_[pick(dtypes_.size())];
    if (!is_float(to) && !v.exact) return;
    add(cast(v.node, to), v.exact && !is_float(to));
  }

  std::mt19937_64 random_;
  bool smooth_;
  std::vector<DType> dtypes_;
  std::vector<Value> nodes_;
};

double tolerance(DType d) {
  switch (d) {
    case DType::F64: return 1e-9;
    case DType::F32: return 2e-5;
    case DType::F16: return 2e-2;
    case DType::BF16: return 1.5e-1;
    default: return 0;
  }
}

// The worst dtype on the way to a value says how near two devices come.
double tolerance_of(const Graph& graph) {
  double out = 0;
  for (int i = 0; i < graph.size(); ++i) out = std::max(out, tolerance(graph.node(i).dtype()));
  return out;
}

std::vector<Array> run(const Graph& graph, const ArrayMap& feeds, Device device) {
  auto compiled = Session(std::move(device)).compile(graph);
  ArrayMap inputs;
  for (auto& n : graph.inputs()) inputs[n.name()] = feeds.at(n.name());
  for (auto& n : graph.params()) compiled.set_param(n.name(), feeds.at(n.name()));
  return compiled.run(inputs);
}

// Empty where the two agree.
std::string difference(const std::vector<Array>& a, const std::vector<Array>& b, double tolerance) {
  for (std::size_t k = 0; k < a.size(); ++k) {
    if (a[k].type() != b[k].type())
      return "output " + std::to_string(k) + " is " + to_string(b[k].type()) + ", not " + to_string(a[k].type());
    double scale = 1;
    for (std::int64_t i = 0; i < a[k].size(); ++i)
      if (std::isfinite(a[k].at(i))) scale = std::max(scale, std::abs(a[k].at(i)));
    double bound = is_float(a[k].dtype()) ? tolerance * scale : 0;
    for (std::int64_t i = 0; i < a[k].size(); ++i) {
      double x = a[k].at(i), y = b[k].at(i);
      if (x == y || (std::isnan(x) && std::isnan(y)) || std::abs(x - y) <= bound) continue;
      return "output " + std::to_string(k) + " element " + std::to_string(i) + ": " + std::to_string(y) +
             ", expected " + std::to_string(x);
    }
  }
  return "";
}

// The loss is smooth in the leaves: a weighted sum of everything that is a float.
Node loss_of(Fuzzer& f) {
  Node loss = none;
  for (Node out : f.graph.outputs()) {
    if (!is_float(out.dtype())) continue;
    Axes all;
    for (int i = 0; i < out.rank(); ++i) all.push_back(i);
    Node term = mean(tanh(0.25 * out), all);
    if (count(out.shape()) == Dim(0)) term = sum(out, all);
    loss = loss ? loss + term : term;
  }
  return loss;
}

Nodes float_leaves(const Fuzzer& f) {
  Nodes out;
  for (auto& n : f.leaves)
    if (is_float(n.dtype())) out.push_back(n);
  return out;
}

}  // namespace

TEST(GraphFuzz, CpuAgreesWithTheInterpreter) {
  const std::vector<std::vector<DType>> kMixes = {
      {DType::F32},
      {DType::F32, DType::I32},
      {DType::F32, DType::F32, DType::BF16, DType::F16, DType::I64, DType::U8},
      {DType::F64, DType::I8}};
  for (std::uint64_t seed = first_seed(); seed < first_seed() + seeds(600); ++seed) {
    Fuzzer f(seed, false, kMixes[seed % kMixes.size()]);
    f.build(8 + int(f.pick(20)));
    f.graph.verify();
    ASSERT_EQ(Graph::parse(f.graph.text()).text(), f.graph.text());
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + f.graph.text());
    auto expected = run(f.graph, f.feeds, Device::reference());
    std::string wrong = difference(expected, run(f.graph, f.feeds, Device::cpu()), tolerance_of(f.graph));
    ASSERT_EQ(wrong, "");
  }
}

TEST(GraphFuzz, SizesMayChangeFromRunToRun) {
  for (std::uint64_t seed = first_seed(); seed < first_seed() + seeds(200); ++seed) {
    Fuzzer f(seed, false, {DType::F32, DType::F32, DType::I32});
    f.symbolic = true;
    f.build(6 + int(f.pick(16)));
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + f.graph.text());
    ASSERT_EQ(Graph::parse(f.graph.text()).text(), f.graph.text());
    auto reference = Session(Device::reference()).compile(f.graph), cpu = Session(Device::cpu()).compile(f.graph);
    for (std::int64_t n : {4, 7, 1, 4}) {
      ArrayMap inputs;
      for (auto& leaf : f.graph.inputs()) inputs[leaf.name()] = f.value_at(leaf, n);
      std::vector<Array> expected;
      try {
        expected = reference.run(inputs);
      } catch (const UserError&) {  // this n does not go together with a number somewhere
        EXPECT_THROW(cpu.run(inputs), UserError) << "n = " << n;
        continue;
      }
      ASSERT_EQ(difference(expected, cpu.run(inputs), tolerance_of(f.graph)), "") << "n = " << n;
    }
  }
}

TEST(GraphFuzz, CpuGradientsAgreeWithTheInterpreter) {
  for (std::uint64_t seed = first_seed(); seed < first_seed() + seeds(300); ++seed) {
    Fuzzer f(seed, true, {DType::F32});
    f.build(6 + int(f.pick(12)));
    Node loss = loss_of(f);
    Nodes wrt = float_leaves(f);
    if (!loss || wrt.empty()) continue;
    f.graph.set_outputs({loss});
    Graph g = grad_with_loss(f.graph, wrt);
    f.feeds["d_output"] = Array::scalar(1, DType::F32);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + f.graph.text());
    std::string wrong =
        difference(run(g, f.feeds, Device::reference()), run(g, f.feeds, Device::cpu()), 10 * tolerance_of(g));
    ASSERT_EQ(wrong, "");
  }
}

TEST(GraphFuzz, GradientsAgreeWithCentralDifferences) {
  for (std::uint64_t seed = first_seed(); seed < first_seed() + seeds(300); ++seed) {
    Fuzzer f(seed, true, {DType::F64});
    f.build(6 + int(f.pick(8)));
    Node loss = loss_of(f);
    Nodes wrt = float_leaves(f);
    if (!loss || wrt.empty()) continue;
    Nodes gradients = grad(loss, wrt);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + f.graph.text());
    auto feed = [&](double step, const std::vector<Array>& direction) {
      Feeds out(f.feeds.begin(), f.feeds.end());
      for (std::size_t i = 0; i < direction.size(); ++i) {
        Array moved = f.feeds.at(wrt[i].name()).clone();
        for (std::int64_t k = 0; k < moved.size(); ++k)
          moved.values<double>()[std::size_t(k)] += step * direction[i].at(k);
        out[wrt[i].name()] = moved;
      }
      return out;
    };
    std::vector<Array> direction;
    for (auto& n : wrt) {
      Array d(DType::F64, to_extents(n.shape()));
      for (double& v : d.values<double>()) v = f.uniform(-1, 1);
      direction.push_back(d);
    }
    auto exact = evaluate(gradients, feed(0, direction));
    double slope = 0;
    for (std::size_t i = 0; i < exact.size(); ++i)
      for (std::int64_t k = 0; k < exact[i].size(); ++k) slope += exact[i].at(k) * direction[i].at(k);
    constexpr double kStep = 1e-5;
    double high = evaluate(loss, feed(kStep, direction)).at(0), low = evaluate(loss, feed(-kStep, direction)).at(0);
    double measured = (high - low) / (2 * kStep), middle = evaluate(loss, feed(0, direction)).at(0);
    if (std::isnan(measured)) continue;  // the mean of nothing
    if (std::abs(high - 2 * middle + low) > 1e-4 * kStep * std::max(1.0, std::abs(measured))) continue;  // at a corner
    ASSERT_NEAR(slope, measured, 1e-5 * std::max(1.0, std::abs(measured)));
  }
}
