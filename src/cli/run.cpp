// rlx run: a saved graph on a device.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "base/philox.h"
#include "cli/command.h"
#include "rlx/files.h"

namespace rlx::cli {
namespace {

struct Options {
  std::string graph, weights, out;
  std::vector<std::string> inputs, dims;
  std::uint64_t seed = 1;
};

std::pair<std::string, std::string> split(const std::string& text, const char* what) {
  auto at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    throw UserError(fmt::format("[run] got {} \"{}\", expected NAME=VALUE", what, text));
  return {text.substr(0, at), text.substr(at + 1)};
}

// Normal numbers; 0 and 1 for integers and bool.
Array random_array(const Type& type, const Bindings& symbols, std::uint64_t seed, std::uint64_t stream) {
  PhiloxStream random(seed, stream);
  Array out(DType::F32, evaluate(type.shape, symbols));
  for (float& v : out.values<float>()) {
    float a = random.next_uniform(), b = random.next_uniform();
    v = is_float(type.dtype) ? float(std::sqrt(-2 * std::log1p(-double(a))) * std::cos(6.283185307179586 * double(b)))
                             : float(a < 0.5f);
  }
  return out.cast(type.dtype);
}

// Values of params and inputs are checked where they are set; here is only whether the names exist.
Node leaf(const std::string& name, const Nodes& among, const char* what) {
  for (Node n : among)
    if (n.name() == name) return n;
  std::string known;
  for (Node n : among) known += (known.empty() ? "" : ", ") + n.name();
  throw UserError(
      fmt::format("[run] the graph has no {} \"{}\"; it has: {}", what, name, known.empty() ? "none" : known));
}

std::string file_name(Node output, std::size_t i) {
  std::string name = output.name().empty() ? fmt::format("output_{}", i) : output.name();
  for (char& c : name)
    if (c == '/' || c == '\\' || static_cast<unsigned char>(c) < ' ') c = '_';
  return name;
}

void set_weights(CompiledGraph& compiled, const Options& o) {
  Nodes params = compiled.source().params();
  std::string path = o.weights;
  if (path.empty() && std::filesystem::exists(o.graph + ".safetensors")) path = o.graph + ".safetensors";
  if (path.empty() && !params.empty())
    throw UserError(fmt::format("[run] the graph has {} params, expected --weights", params.size()));
  if (path.empty()) return;
  for (auto& [name, value] : load_safetensors(path).tensors) {
    leaf(name, params, "param");
    compiled.set_param(name, value);
  }
}

ArrayMap inputs_of(const Graph& graph, const Options& o) {
  Bindings symbols;
  for (auto& text : o.dims) {
    auto [name, value] = split(text, "dim");
    std::size_t used = 0;
    std::int64_t size = -1;
    try {
      size = std::stoll(value, &used);
    } catch (const std::exception&) {
    }
    if (used != value.size() || size < 0)
      throw UserError(fmt::format("[run] got dim \"{}\", expected NAME=SIZE", text));
    symbols[name] = size;
  }
  ArrayMap out;
  std::uint64_t stream = 0;
  for (auto& text : o.inputs) {
    auto [name, value] = split(text, "input");
    Node input = leaf(name, graph.inputs(), "input");
    if (!out.emplace(name,
                     value == "random" ? random_array(input.type(), symbols, o.seed, stream++) : Array::load_npy(value))
             .second)
      throw UserError(fmt::format("[run] input \"{}\" is given twice", name));
  }
  return out;
}

void run_graph(const Options& o, Context& context) {
  Graph graph = Graph::parse(read_file(o.graph));
  ArrayMap inputs = inputs_of(graph, o);
  CompiledGraph compiled =
      Session(context.target()).compile(graph, {.name = std::filesystem::path(o.graph).stem().string()});
  set_weights(compiled, o);
  auto start = std::chrono::steady_clock::now();
  std::vector<Array> outputs = compiled.run(inputs);
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::error_code error;
  std::filesystem::create_directories(o.out, error);
  if (error) throw DeviceError(fmt::format("cannot write '{}': {}", o.out, error.message()));
  Json files = Json::array();
  std::string lines;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    std::string path = o.out + "/" + file_name(graph.outputs()[i], i) + ".npy";
    for (auto& f : files)
      if (f["file"] == path) path = o.out + fmt::format("/output_{}.npy", i);
    outputs[i].save_npy(path);
    files.push_back({{"file", path}, {"type", to_string(outputs[i].type())}});
    lines += fmt::format("{}: {}\n", path, to_string(outputs[i].type()));
  }
  if (context.json)
    print_json(Json{{"device", context.device}, {"seconds", seconds}, {"outputs", files}});
  else
    print(lines + fmt::format("ran in {:.3f} s on {}\n", seconds, context.device));
}

}  // namespace

void add_run(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("run", "Run a saved graph and write its outputs as .npy");
  auto o = std::make_shared<Options>();
  command->add_option("graph", o->graph, "The graph's text, GRAPH.rlx")->required();
  command->add_option("--weights", o->weights, "Its params, .safetensors; by default GRAPH.rlx.safetensors");
  command->add_option("--input", o->inputs, "NAME=FILE.npy or NAME=random");
  command->add_option("--dim", o->dims, "NAME=SIZE of a symbolic dim of a random input");
  command->add_option("--seed", o->seed, "Of random inputs")->capture_default_str();
  command->add_option("-o,--out", o->out, "The folder to write to")->required();
  add_common_options(*command, context, true);
  command->callback([=, &context] { run_graph(*o, context); });
}

}  // namespace rlx::cli
