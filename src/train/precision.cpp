#include "train/precision.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/graph_data.h"
#include "passes/passes.h"
#include "rlx/transform.h"
#include "train/model.h"

namespace rlx {
namespace {

// The embedding is the head too; both stay in full precision, as the model's first and last step.
const std::vector<std::string> kKept = {"token_embd.weight"};

Graph to_bitnet(const Graph& graph, const ModelConfig&) {
  BitNetConfig qat;
  qat.keep_full_precision = kKept;
  return inject_bitnet_qat(graph, qat).graph;
}

template <DType kDType>
Graph to_mixed(const Graph& graph, const ModelConfig&) {
  return auto_mixed_precision(graph, {.policy = PrecisionPolicy::AutoMixed, .dtype = kDType}).graph;
}

template <ScaledMatmulConfig (*kPreset)()>
Graph to_scaled(const Graph& graph, const ModelConfig& c) {
  ScaledMatmulConfig config = kPreset();
  config.keep_full_precision = kKept;
  if (c.gradient_format == "e5m2") {
    config.quantize_gradient = true;
    config.gradient_format = Format::F8E5M2;
  }
  auto result = insert_scaled_matmul(graph, config);
  for (auto& p : model_params(c))  // the head aside, all are asked for
    if (p.is_linear && std::ranges::find(result.report.weights, p.name) == result.report.weights.end())
      throw InternalError(fmt::format("insert_scaled_matmul left {} alone", p.name));
  return result.graph;
}

Graph to_codebooks(const Graph& graph, const ModelConfig& c) {
  return insert_codebooks(graph, codebook_config(c)).graph;
}

}  // namespace

std::span<const Precision> precisions() {
  static const std::vector<Precision> rows = {
      {"f32", "everything in f32", WeightForm::Dense, nullptr, false, {"f32", "bf16", "f16"}},
      {"bf16", "products in bf16", WeightForm::Dense, to_mixed<DType::BF16>, false, {"bf16", "f32", "f16"}},
      {"f16", "products in f16, losses scaled", WeightForm::Dense, to_mixed<DType::F16>, true, {"f16", "f32", "bf16"}},
      {"bitnet",
       "ternary weights, int8 activations",
       WeightForm::Ternary,
       to_bitnet,
       false,
       {"tq2_0", "tq1_0", "f16", "bf16", "f32"}},
      {"fp8",
       "E4M3, one scale a tensor",
       WeightForm::Scaled,
       to_scaled<ScaledMatmulConfig::fp8_e4m3>,
       false,
       {"f8e4m3"}},
      {"mxfp8",
       "E4M3, a power of two for each 32",
       WeightForm::Scaled,
       to_scaled<ScaledMatmulConfig::mxfp8_e4m3>,
       false,
       {"mxfp8"}},
      {"mxfp6",
       "E2M3, a power of two for each 32",
       WeightForm::Scaled,
       to_scaled<ScaledMatmulConfig::mxfp6_e2m3>,
       false,
       {"mxfp6"}},
      {"mxfp4",
       "E2M1, a power of two for each 32",
       WeightForm::Scaled,
       to_scaled<ScaledMatmulConfig::mxfp4>,
       false,
       {"mxfp4"}},
      {"nvfp4",
       "E2M1, an E4M3 scale for each 16",
       WeightForm::Scaled,
       to_scaled<ScaledMatmulConfig::nvfp4>,
       false,
       {"nvfp4"}},
      {"codebook",
       "weights put together from the entries of a codebook",
       WeightForm::Codebook,
       to_codebooks,
       false,
       {"codebook"}},
  };
  return rows;
}

std::vector<std::string> precision_names() {
  std::vector<std::string> out;
  for (auto& p : precisions()) out.emplace_back(p.name);
  return out;
}

const Precision& precision(std::string_view name) {
  for (auto& p : precisions())
    if (p.name == name) return p;
  throw UserError(fmt::format("got precision \"{}\", expected one of {}", name, fmt::join(precision_names(), ", ")));
}

std::string block_scale_name(const std::string& weight) {
  return weight.substr(0, weight.size() - std::string_view("weight").size()) + "block_scale";
}
std::string indices_name(const std::string& weight) { return weight + ".indices"; }
std::string codebook_name(const std::string& weight) { return weight + ".codebook"; }

namespace {

// For each node the one linear weight that it depends on, and nothing else but constants; -1: something else, -2:
// constants alone.
std::vector<int> sole_sources(const Graph& graph, const std::vector<std::string>& linear) {
  std::vector<int> out;
  for (int id = 0; id < graph.size(); ++id) {
    Node n = graph.node(id);
    int source = n.is(input_op) || n.is(param_op) ? -1 : -2;
    for (std::size_t i = 0; i < linear.size() && n.is(param_op); ++i)
      if (n.name() == linear[i]) source = id;
    for (auto& in : n.inputs()) {
      int of = out[std::size_t(in.id())];
      if (of != -2) source = source == -2 || source == of ? of : -1;
    }
    out.push_back(source);
  }
  return out;
}

std::string stored_name(Node value, Node weight) {
  if (value.dtype() == DType::F32 && value.shape() == Shape{1}) return tensor_scale_name(weight.name());
  if (value.dtype() == DType::U8)
    return value.shape() == weight.shape() ? weight.name() : block_scale_name(weight.name());
  throw InternalError(fmt::format("freeze_weights: {} of {} has no place in a file", value.text(), weight.name()));
}

}  // namespace

FrozenGraph freeze_weights(const Graph& rewritten, const std::vector<std::string>& linear) {
  Graph source = eliminate_dead_code(rewritten).graph;
  std::vector<int> of = sole_sources(source, linear);
  std::vector<bool> is_stored(of.size());
  for (int id = 0; id < source.size(); ++id)
    for (auto& in : source.node(id).inputs())
      if (of[std::size_t(in.id())] >= 0 && of[std::size_t(id)] < 0) is_stored[std::size_t(in.id())] = true;

  FrozenGraph out;
  Nodes copies(of.size()), makers(of.size()), stored, outputs;
  auto copy = [&](Node n, Nodes& made, Graph& to) {
    Nodes inputs;
    for (auto& in : n.inputs()) inputs.push_back(made[std::size_t(in.id())]);
    return made[std::size_t(n.id())] = copy_node(n, to, std::move(inputs));
  };
  for (int id = 0; id < source.size(); ++id) {
    Node n = source.node(id);
    int weight = of[std::size_t(id)];
    if (weight != -1) copy(n, makers, out.weights);
    if (weight < 0) copy(n, copies, out.graph);
    if (!is_stored[std::size_t(id)]) continue;
    out.names.push_back(stored_name(n, source.node(weight)));
    stored.push_back(makers[std::size_t(id)]);
    copies[std::size_t(id)] = out.graph.param(out.names.back(), n.type());
  }
  for (auto& n : source.outputs()) outputs.push_back(copies[std::size_t(n.id())]);
  out.graph.set_outputs(outputs);
  out.weights.set_outputs(stored);
  return out;
}

}  // namespace rlx
