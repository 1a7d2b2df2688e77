// Dynamic loss scaling: gradients are taken of the loss times a scale that keeps them inside f16's range, and a step
// whose gradients leave it is not taken.
#include <fmt/format.h>

#include <cmath>

#include "rlx/ops.h"
#include "rlx/train.h"

namespace rlx {
namespace {

void check(const LossScaling& c) {
  auto fail = [](const char* what, double got, const char* expected) {
    throw UserError(fmt::format("[loss_scaling] got {} {}, expected {}", what, got, expected));
  };
  for (auto [what, value] : {std::pair{"least", c.least}, {"most", c.most}, {"initial", c.initial}})
    if (!(value > 0) || !std::isfinite(float(value))) fail(what, value, "a finite number above 0");
  if (c.most < c.least) fail("most", c.most, "a number not below least");
  if (c.initial < c.least || c.initial > c.most) fail("initial", c.initial, "a number within [least, most]");
  if (!(c.growth >= 1) || !std::isfinite(c.growth)) fail("growth", c.growth, "a finite number not below 1");
  if (!(c.backoff > 0) || !(c.backoff < 1)) fail("backoff", c.backoff, "a number between 0 and 1");
  constexpr std::int64_t kMost = 1 << 24;  // counted in f32
  if (c.growth_interval < 1 || c.growth_interval > kMost)
    fail("growth_interval", double(c.growth_interval), "a number from 1 to 16777216");
}

Node sum_of_all(Node x) {
  Axes all;
  for (int d = 0; d < x.rank(); ++d) all.push_back(d);
  return sum(x, all);
}

}  // namespace

LossScaler::LossScaler(Graph graph, const LossScaling& config) : config_(config) {
  check(config);
  state_ = graph.param("loss_scale.scale", DType::F32, {});
  good_steps_ = graph.param("loss_scale.good_steps", DType::F32, {});
  step_ = graph.param("loss_scale.step", DType::F32, {});
  scale_ = where(state_ == 0, config.initial, state_);
}

Node LossScaler::seed(Node loss) const {
  if (!is_float(loss.dtype()) || loss.dtype() == DType::F16)
    throw UserError(
        fmt::format("[loss_scaling] the loss is {}, expected f32, bf16 or f64, which can hold the scale", loss.text()));
  Node cotangent = loss.dtype() == DType::F32 ? scale_ : cast(scale_, loss.dtype());
  return loss.rank() == 0 ? cotangent : expand(cotangent, loss.shape());
}

Nodes LossScaler::unscale(const Nodes& gradients) {
  if (finite_) throw UserError("[loss_scaling] unscale is called a second time, expected one call with all gradients");
  Nodes out;
  Node total = none, inverse = 1 / scale_;
  for (Node g : gradients) {
    bool narrow = g.dtype() == DType::F16 || g.dtype() == DType::BF16;
    out.push_back((narrow ? cast(g, DType::F32) : g) * inverse);
    // x · 0 is 0 for every finite x and NaN for all others: no sum of squares, which could leave the range by itself.
    Node part = sum_of_all(out.back() * 0);
    total = total ? total + part : part;
  }
  if (!total) throw UserError("[loss_scaling] got no gradients");
  finite_ = total == 0;
  return out;
}

Node LossScaler::finite() const {
  if (!finite_) throw UserError("[loss_scaling] unscale has not been called");
  return finite_;
}

Node LossScaler::step() const { return step_ + 1; }

Node LossScaler::guarded(Node state, Node next) const { return where(finite(), next, state); }

std::vector<StateNode> LossScaler::states() const {
  Node good = good_steps_ + 1, enough = good >= double(config_.growth_interval);
  Node grown = minimum(scale_ * config_.growth, config_.most);
  Node shrunk = maximum(scale_ * config_.backoff, config_.least);
  return {{state_, where(finite(), where(enough, grown, scale_), shrunk)},
          {good_steps_, where(logical_and(finite(), logical_not(enough)), good, 0)},
          {step_, guarded(step_, step())}};
}

}  // namespace rlx
