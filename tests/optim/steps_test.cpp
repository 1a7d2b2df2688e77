// Each optimizer step for step beside PyTorch's or its paper's formula, and at its edges.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "message_of.h"
#include "rlx/attrs.h"
#include "rlx/session.h"

using namespace rlx;

namespace {

using Json = nlohmann::json;

Array start_of(const Extents& shape, DType dtype) {
  Array out(DType::F64, shape);
  for (std::int64_t i = 0; i < out.size(); ++i) out.values<double>()[std::size_t(i)] = std::cos(0.9 * double(i) + 0.4);
  return out.cast(dtype);
}
Array gradient_of(const Extents& shape, int step, DType dtype) {
  Array out(DType::F64, shape);
  for (std::int64_t i = 0; i < out.size(); ++i)
    out.values<double>()[std::size_t(i)] =
        i % 5 == 3 ? 0 : std::sin(0.7 * double(i) * (1 + 0.1 * step) + 1.3 * step) * std::pow(10, -(step % 3));
  return out.cast(dtype);
}
double rate_of(int step) { return 0.02 / (1 + 0.1 * step); }

template <class T>
void set(const Json& settings, const char* name, T& value) {
  if (!settings.contains(name)) return;
  if constexpr (std::is_enum_v<T>)
    parse_field(settings.at(name).get<std::string>(), value);
  else
    value = settings.at(name).get<T>();
}
Optimizer optimizer_of(const Json& c) {
  Optimizer out = optimizer_from_string(c.at("optimizer").get<std::string>());
  const Json& s = c.at("settings");
  if (auto* o = std::get_if<Sgd>(&out)) {
    set(s, "momentum", o->momentum), set(s, "dampening", o->dampening), set(s, "nesterov", o->nesterov),
        set(s, "coupled_decay", o->coupled_decay);
  } else if (auto* o = std::get_if<AdamW>(&out)) {
    set(s, "beta2", o->beta2);
  } else if (auto* o = std::get_if<Adafactor>(&out)) {
    set(s, "beta2_decay", o->beta2_decay), set(s, "epsilon1", o->epsilon1), set(s, "epsilon2", o->epsilon2),
        set(s, "clip", o->clip);
  } else if (auto* o = std::get_if<Muon>(&out)) {
    set(s, "scale", o->scale), set(s, "nesterov", o->nesterov), set(s, "bf16", o->bf16), set(s, "flatten", o->flatten);
  }
  return out;
}

// How far an f32 optimizer may be from the stored values. Adafactor's ε is the dtype's own, which the values of f64
// show.
double tolerance_of(const Json& c, DType dtype) {
  if (double own = c.at("tolerance"); own > 0) return own;
  return dtype == DType::F64 ? 1e-12 : 1e-5;
}

Array one(double value, DType dtype = DType::F64) { return Array::scalar(value, dtype); }

// A scalar param after one step.
double after_a_step(const Optimizer& optimizer, double param, double gradient, double rate, double decay,
                    DType dtype = DType::F64) {
  HostOptimizer host(optimizer, Device::reference());
  Array p = one(param, dtype);
  host.step({{"p", p}}, {{"p", one(gradient, dtype)}}, {.learning_rate = rate, .weight_decay = decay});
  return p.at(0);
}

TEST(Optimizers, AgreeWithTheirOriginalsStepForStep) {
  const Json golden = Json::parse(std::ifstream(std::string(RLX_TESTS_DIR) + "/optim/golden/steps.json"));
  struct Way {
    Device device;
    DType dtype;
  };
  for (auto& [device, dtype] : {Way{Device::reference(), DType::F64}, Way{Device::reference(), DType::F32},
                                Way{Device::cpu(), DType::F32}, Way{Device::cpu(), DType::F64}})
    for (auto& c : golden.at("cases")) {
      // All params of a case at once, by name.
      HostOptimizer host(optimizer_of(c), device);
      ArrayMap params;
      for (auto& p : c.at("params")) params.emplace(p.at("shape").dump(), start_of(p.at("shape"), dtype));
      for (int step = 1; step <= 10; ++step) {
        ArrayMap gradients;
        for (auto& [name, value] : params) gradients.emplace(name, gradient_of(value.shape(), step, dtype));
        host.step(params, gradients, {.step = step, .learning_rate = rate_of(step), .weight_decay = c.at("decay")});
        for (auto& p : c.at("params")) {
          const Array& value = params.at(p.at("shape").dump());
          auto expected = p.at("steps")[std::size_t(step - 1)].get<std::vector<double>>();
          ASSERT_EQ(value.size(), std::int64_t(expected.size()));
          for (std::int64_t i = 0; i < value.size(); ++i)
            ASSERT_NEAR(value.at(i), expected[std::size_t(i)], tolerance_of(c, dtype))
                << c.at("optimizer") << c.at("settings") << " " << p.at("shape") << " step " << step << " on "
                << device.name << " in " << to_string(dtype);
        }
      }
    }
}

TEST(Optimizers, DecayIsDecoupledAndTimesTheRate) {
  for (const Optimizer& o : {Optimizer(Sgd{}), Optimizer(AdamW{}), Optimizer(Lion{}), Optimizer(Adafactor{})})
    EXPECT_NEAR(after_a_step(o, 1, 0, 0.1, 0.01), 0.999, 1e-15) << optimizer_name(o);
  // LAMB's decay is a direction as long as the param itself.
  EXPECT_NEAR(after_a_step(Lamb{}, 1, 0, 0.1, 0.01), 0.9, 1e-15);
  EXPECT_NEAR(after_a_step(AdamW{}, 1, 0.5, 0.1, 0.01), 0.899000002, 1e-9);
  EXPECT_NEAR(after_a_step(Sgd{.coupled_decay = true}, 1, 0.5, 0.1, 0.01), 0.949, 1e-12);
}

TEST(Optimizers, ZeroGradientsAreNoNaNInAnyDtype) {
  for (auto name : {"sgd", "adamw", "muon", "lion", "adafactor", "lamb"})
    for (DType dtype : {DType::F16, DType::BF16, DType::F32})
      for (double value : {0.0, 1.0}) {
        HostOptimizer host(optimizer_from_string(name));
        Array w(DType::F32, {4, 3});
        for (auto& v : w.values<float>()) v = float(value);
        w = w.cast(dtype);
        Array before = w.clone();
        for (int step = 1; step <= 3; ++step)
          host.step({{"w", w}}, {{"w", Array(dtype, {4, 3})}}, {.step = step, .learning_rate = 0.1, .weight_decay = 0});
        EXPECT_TRUE(identical(w, before)) << name << " " << to_string(dtype) << " " << value;
      }
}

TEST(Optimizers, ParamsMayBeEmpty) {
  for (auto name : {"sgd", "adamw", "muon", "lion", "adafactor", "lamb"})
    for (const Extents& shape : {Extents{0, 3}, Extents{3, 0}}) {
      HostOptimizer host(optimizer_from_string(name));
      Array w(DType::F32, shape);
      EXPECT_NO_THROW(host.step({{"w", w}}, {{"w", w}}, {})) << name << " " << to_string(shape);
    }
}

TEST(Optimizers, SixteenBitParamsAreSteppedInF32) {
  for (DType dtype : {DType::F16, DType::BF16}) {
    // A gradient whose square is nothing in f16, and one whose square is infinite.
    for (double gradient : {1e-5, 5000.0}) {
      HostOptimizer host(AdamW{});
      Array p = one(1, dtype);
      host.step({{"p", p}}, {{"p", one(gradient, dtype)}}, {.learning_rate = 0.125, .weight_decay = 0});
      EXPECT_NEAR(p.at(0), 0.875, 1e-3) << gradient;
      EXPECT_EQ(host.state().at("adamw.v.p").dtype(), DType::F32);
    }
  }
}

TEST(Optimizers, MuonIsNoPlainDescent) {
  Array g(std::vector<double>{1, 2, 3, 4, 5, 6}, {3, 2}), by_muon(DType::F64, {3, 2}), by_sgd(DType::F64, {3, 2});
  HostOptimizer muon(Muon{.scale = MuonScale::None}, Device::reference()), sgd(Sgd{}, Device::reference());
  OptimizerStep step{.learning_rate = 1, .weight_decay = 0};
  muon.step({{"w", by_muon}}, {{"w", g}}, step), sgd.step({{"w", by_sgd}}, {{"w", g}}, step);
  // The singular values of what it subtracts, from those of the 2x2 matrix XᵀX.
  double a = 0, b = 0, d = 0, apart = 0;
  for (int i = 0; i < 3; ++i) {
    double x = by_muon.at(2 * i), y = by_muon.at(2 * i + 1);
    a += x * x, b += x * y, d += y * y;
  }
  for (int i = 0; i < 6; ++i) apart = std::max(apart, std::abs(by_muon.at(i) - by_sgd.at(i)));
  double middle = (a + d) / 2, reach = std::sqrt((a - d) * (a - d) / 4 + b * b);
  EXPECT_NEAR(std::sqrt(middle + reach), 0.8176, 1e-4);
  EXPECT_NEAR(std::sqrt(middle - reach), 0.6980, 1e-4);
  EXPECT_GT(apart, 1);
}

TEST(Optimizers, StateIsSavedAndLoadedByName) {
  for (auto name : {"sgd", "adamw", "muon", "lion", "adafactor", "lamb"}) {
    Optimizer optimizer = optimizer_from_string(name);
    if (auto* sgd = std::get_if<Sgd>(&optimizer)) sgd->momentum = 0.9;
    HostOptimizer through(optimizer), first(optimizer), second(optimizer);
    Array a = start_of({3, 4}, DType::F32), b = a.clone();
    auto take = [&](HostOptimizer& host, Array& w, int from, int to) {
      for (int step = from; step <= to; ++step)
        host.step({{"layer.0.w", w}}, {{"layer.0.w", gradient_of({3, 4}, step, DType::F32)}}, {.step = step});
    };
    take(through, a, 1, 6), take(first, b, 1, 3);
    EXPECT_NE(message_of([&] { take(second, b, 4, 4); }).find("has no state \"" + std::string(name)), std::string::npos)
        << name;
    Tensors state = first.state();
    EXPECT_TRUE(state.begin()->first.starts_with(name) && state.begin()->first.ends_with(".layer.0.w"))
        << state.begin()->first;
    second.set_state(state);
    take(second, b, 4, 6);
    EXPECT_TRUE(identical(a, b)) << name;
  }
}

TEST(Groups, TheFirstThatMatchesIsAParamsOwn) {
  ParamGroups groups = muon_groups(Muon{}, Lion{}, 0.25);
  auto taken = [&](const char* name, Extents shape) { return optimizer_name(group_of(groups, name, shape).optimizer); };
  EXPECT_EQ(taken("blk.0.attn_q.weight", {8, 8}), "muon");
  EXPECT_EQ(taken("codebook", {4, 2}), "muon");
  EXPECT_EQ(taken("conv.weight", {8, 3, 3, 3}), "lion");
  for (const char* name :
       {"token_embd.weight", "model.embed_tokens.weight", "wte.weight", "lm_head.weight", "head", "output.weight"})
    EXPECT_EQ(taken(name, {100, 8}), "lion") << name;
  EXPECT_EQ(taken("blk.0.attn_output.weight", {8, 8}), "muon");
  EXPECT_EQ(taken("blk.0.attn_norm.weight", {8}), "lion");
  EXPECT_EQ(taken("scale", {}), "lion");
  EXPECT_FALSE(group_of(groups, "b", {8}).weight_decay);
  EXPECT_TRUE(group_of(groups, "head", {8, 8}).weight_decay);
  EXPECT_EQ(group_of(groups, "head", {8, 8}).learning_rate_factor, 0.25);
  groups = muon_groups(Muon{.flatten = true});
  EXPECT_EQ(taken("conv.weight", {8, 3, 3, 3}), "muon");
  EXPECT_EQ(taken("conv.bias", {8}), "adamw");
}

TEST(Groups, RateAndDecayAreTheGroups) {
  ParamGroups groups{{.optimizer = Sgd{}, .pattern = "slow.*", .learning_rate_factor = 0.5},
                     {.optimizer = Sgd{},
                      .matches = [](std::string_view, const Extents& shape) { return shape.empty(); },
                      .weight_decay = false},
                     {.optimizer = Sgd{}}};
  HostOptimizer host(groups, Device::reference());
  ArrayMap params{{"slow.w", one(1).reshaped({1})}, {"s", one(1)}, {"w", one(1).reshaped({1})}}, gradients;
  for (auto& [name, value] : params) {
    Array gradient = value.clone();
    gradients.emplace(name, gradient);
  }
  host.step(params, gradients, {.learning_rate = 0.1, .weight_decay = 0.5});
  EXPECT_NEAR(params.at("slow.w").at(0), 1 - 0.05 - 0.025, 1e-12);
  EXPECT_NEAR(params.at("s").at(0), 0.9, 1e-12);
  EXPECT_NEAR(params.at("w").at(0), 1 - 0.1 - 0.05, 1e-12);
}

TEST(Groups, Patterns) {
  EXPECT_TRUE(fits_pattern("", "*") && fits_pattern("abc", "*") && fits_pattern("abc", "a?c") &&
              fits_pattern("a.b.c", "*.c"));
  EXPECT_TRUE(fits_pattern("aXbXb", "a*b") && fits_pattern("abc", "abc") && fits_pattern("abc", "**c*"));
  EXPECT_FALSE(fits_pattern("abc", "ab") || fits_pattern("", "?") || fits_pattern("abc", "a?") ||
               fits_pattern("abcd", "*c") || fits_pattern("a", ""));
}

TEST(Optimizers, DefaultsAreThePublishedOnes) {
  EXPECT_EQ(default_step(Muon{}).learning_rate, 1e-3);
  EXPECT_EQ(default_step(Muon{}).weight_decay, 0.1);
  EXPECT_EQ(default_step(AdamW{}).weight_decay, 0.01);
  Array w = one(1);
  HostOptimizer(AdamW{}, Device::reference()).step({{"w", w}}, {{"w", one(0.5)}}, {});
  EXPECT_NEAR(w.at(0), 1 - 1e-3 * 0.01 - 1e-3, 1e-9);
}

TEST(Optimizers, ErrorsSayWhatWasGivenAndExpected) {
  Array w(DType::F32, {2, 3}), b(DType::F32, {3});
  auto fails = [](const std::string& expected, const std::function<void()>& f) { EXPECT_EQ(message_of(f), expected); };
  fails("there is no optimizer \"adam\", expected one of sgd, adamw, muon, lion, adafactor, lamb",
        [] { optimizer_from_string("adam"); });
  fails("[sgd] got momentum 1, expected 0 or more and less than 1", [] { check_optimizer(Sgd{.momentum = 1}); });
  fails("[sgd] got nesterov with momentum 0 and dampening 0, expected momentum and no dampening",
        [] { check_optimizer(Sgd{.nesterov = true}); });
  fails("[adamw] got epsilon -1, expected 0 or more", [] { HostOptimizer(AdamW{.epsilon = -1}); });
  fails("[muon] got 0 Newton-Schulz steps, expected 1 to 100", [] { check_optimizer(Muon{.steps = 0}); });
  fails("[muon] got out axis 2, expected 0 or 1", [] { check_optimizer(Muon{.out_axis = 2}); });
  fails("[muon] got out axis 1, expected 0 of params that are flattened to [out, -1]",
        [] { check_optimizer(Muon{.out_axis = 1, .flatten = true}); });
  fails("[lion] got beta1 nan, expected 0 or more and less than 1",
        [] { check_optimizer(Lion{.beta1 = std::nan("")}); });
  fails("[adafactor] got beta2_decay 1, expected one of at most 0",
        [] { check_optimizer(Adafactor{.beta2_decay = 1}); });
  fails("[lamb] got beta2 1.5, expected 0 or more and less than 1", [] { check_optimizer(Lamb{.beta2 = 1.5}); });
  HostOptimizer muon(Muon{});
  fails("optimizer: there is a gradient of \"w\" and no such param", [&] { muon.step({}, {{"w", w}}, {}); });
  fails("optimizer: the gradient of \"w\" is f32[3], the param is f32[2,3]", [&] {
    muon.step({{"w", w}}, {{"w", b}}, {});
  });
  fails(
      "optimizer: \"b\" f32[3]: [muon] got %0 \"param\" f32[3], expected a 2-D param; muon_groups gives the others to "
      "another optimizer",
      [&] {
        muon.step({{"b", b}}, {{"b", b}}, {});
      });
  Array conv(DType::F32, {2, 3, 2}), codes(DType::I32, {2, 3});
  fails(
      "optimizer: \"c\" f32[2,3,2]: [muon] got %0 \"param\" f32[2,3,2], expected a 2-D param, or flatten to take it as "
      "[out, -1]; muon_groups gives the "
      "others to another optimizer",
      [&] {
        muon.step({{"c", conv}}, {{"c", conv}}, {});
      });
  fails("optimizer: \"i\" i32[2,3]: [muon] got %0 \"param\" i32[2,3], expected a float param", [&] {
    muon.step({{"i", codes}}, {{"i", codes}}, {});
  });
  muon.set_state({{"muon.m.v", w}});
  fails("optimizer: there is state \"muon.m.v\" and no tensor \"v\"", [&] { muon.step({{"w", w}}, {{"w", w}}, {}); });
}

}  // namespace
