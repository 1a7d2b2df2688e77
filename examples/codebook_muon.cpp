// A layer whose weight is put together from four entries of a codebook, which Muon learns without leaving the device.
#include <cmath>
#include <cstdio>

#include "rlx/rlx.h"

using namespace rlx;

static bool holds(bool yes, const char* what) { return std::printf("%s: %s\n", yes ? "ok" : "FAILED", what), yes; }

template <class F>
static Array filled(DType dtype, Extents shape, F&& value) {
  Array out(DType::F64, std::move(shape));
  for (std::int64_t i = 0; i < out.size(); ++i) out.values<double>()[std::size_t(i)] = value(i);
  return out.cast(dtype);
}

int main() {
  Array x = filled(DType::F32, {8, 8}, [](auto i) { return std::sin(0.17 * double(i)); });
  Array indices = filled(DType::U8, {6, 4}, [](auto i) { return double((3 * i + 1) % 4); });
  Array truth = filled(DType::F32, {4, 2}, [](auto i) { return 0.9 * std::cos(0.5 * double(i)); });

  // y = x · weightᵀ, where weight [6, 8] is 6 · 4 entries of 2. The loss asks for the outputs of another codebook.
  Graph model;
  auto layer = [&](Node codebook) {
    Node in = model.find_leaf("x") ? model.find_leaf("x") : model.input("x", x.type());
    Node at = model.find_leaf("indices") ? model.find_leaf("indices") : model.param("indices", indices.type());
    return synth_matmul(in, at, codebook, {.entry_dim = 2, .num_entries = 4});
  };
  Node error = layer(model.param("codebook", truth.type())) - layer(model.constant(truth));
  model.set_outputs({sum(error * error, {0, 1})});
  Graph step = grad_with_loss(model, {"codebook"});  // [loss, d loss / d codebook]

  bool ok = true;
  for (MuonScale scale : {MuonScale::Original, MuonScale::MatchRmsAdamw}) {
    Muon muon{.scale = scale, .out_axis = 0};  // the entries count as outputs
    OptimizerStep rate{.learning_rate = 0.1, .weight_decay = 0};

    // Everything that a step needs lives on the device; only the loss comes back.
    CompiledGraph resident = Session(Device::cpu()).compile(step, {.name = "resident"});
    resident.set_param("indices", indices);
    resident.bind_resident("x", x);
    resident.bind_resident("d_output", Array::scalar(1, DType::F32));
    resident.bind_resident("codebook", Array(DType::F32, {4, 2}));

    // The same by hand: the gradient comes to the host, its optimizer steps the codebook, which goes back.
    CompiledGraph by_host = Session(Device::cpu()).compile(step, {.name = "by host"});
    by_host.set_param("indices", indices);
    HostOptimizer optimizer(muon);
    ArrayMap codebook{{"codebook", Array(DType::F32, {4, 2})}};

    double first = 0, last = 0;
    bool equal = true;
    for (rate.step = 1; rate.step <= 200; ++rate.step) {
      last = resident.run_read_outputs({}, {0})[0].at(0);
      first = rate.step == 1 ? last : first;
      resident.optimizer_step_resident(muon, {{"codebook", 1}}, rate);

      by_host.set_param("codebook", codebook.at("codebook"));
      auto result = by_host.run({{"x", x}, {"d_output", Array::scalar(1, DType::F32)}});
      optimizer.step(codebook, {{"codebook", result[1]}}, rate);
      equal &= result[0].at(0) == last && identical(codebook.at("codebook"), resident.read_resident("codebook"));
    }
    std::printf("scale %s: loss %.4f -> %.2g\n", enum_names(scale)[std::size_t(scale)].data(), first, last);
    ok &= holds(std::fabs(first - 62.2608) < 1e-4 && last < 0.1 * first, "it learns the codebook");
    ok &= holds(equal, "on the device and by the host, each step gives the same bits");
  }
  return ok ? 0 : 1;
}
