// The checks that every device shares, before a backend sees a name or a value.
#include "rlx/session.h"

#include <fmt/format.h>

#include <cstring>

#include "backends/backend.h"
#include "ops/eval.h"

namespace rlx {
namespace {

std::string names_of(const Nodes& leaves) {
  std::string out;
  for (auto& leaf : leaves) out += (out.empty() ? "" : ", ") + fmt::format("\"{}\"", leaf.name());
  return out.empty() ? "none" : out;
}

Node find_param(const Graph& graph, const std::string& graph_name, std::string_view name) {
  Node leaf = graph.find_leaf(name);
  if (!leaf || leaf.op().name != "param")
    throw UserError(fmt::format("{}: there is no param \"{}\"; it has {}", graph_name, name, names_of(graph.params())));
  return leaf;
}

void check_updates(const Graph& graph, const CompileOptions& options) {
  for (auto& u : options.updates) {
    Node param = find_param(graph, options.name, u.param);
    if (u.output < 0 || u.output >= int(graph.outputs().size()))
      throw UserError(fmt::format("{}: the update of \"{}\" is output {}, the graph has {}", options.name, u.param, u.output, graph.outputs().size()));
    Node out = graph.outputs()[std::size_t(u.output)];
    if (out.type() != param.type())
      throw UserError(fmt::format("{}: the update of \"{}\" is {}, the param is {}", options.name, u.param, to_string(out.type()), to_string(param.type())));
  }
}

// A copy that nothing else shares, so that building on in the source changes no compiled graph.
Graph snapshot(const Graph& graph) {
  Graph out;
  Nodes copies, outputs;
  for (int id = 0; id < graph.size(); ++id) {
    Nodes inputs;
    for (auto& in : graph.node(id).inputs()) inputs.push_back(copies[std::size_t(in.id())]);
    copies.push_back(copy_node(graph.node(id), out, std::move(inputs)));
  }
  for (auto& o : graph.outputs()) outputs.push_back(copies[std::size_t(o.id())]);
  out.set_outputs(std::move(outputs));
  return out;
}

}  // namespace

std::vector<Device> devices() {
  std::vector<Device> out;
  for (auto& name : backend_names()) out.push_back({name});
  return out;
}

Session::Session(Device device) : device_(std::move(device)) {
  if (find_backend(device_.name)) return;
  std::string all;
  for (auto& name : backend_names()) all += (all.empty() ? "" : ", ") + name;
  throw UserError(fmt::format("there is no device \"{}\"; this machine has {}", device_.name, all));
}

CompiledGraph Session::compile(const Graph& graph, CompileOptions options) const {
  if (graph.is_pattern()) throw UserError(options.name + ": a pattern cannot be compiled");
  if (graph.outputs().empty()) throw UserError(options.name + ": the graph has no outputs");
  graph.verify();
  check_updates(graph, options);
  Graph source = snapshot(graph);
  auto executable = find_backend(device_.name)->compile(source, options);
  return CompiledGraph(std::move(source), std::move(options), std::move(executable));
}

CompiledGraph::CompiledGraph(Graph source, CompileOptions options, std::unique_ptr<Executable> executable)
    : source_(std::move(source)), options_(std::move(options)), executable_(std::move(executable)) {}
CompiledGraph::CompiledGraph(CompiledGraph&&) noexcept = default;
CompiledGraph& CompiledGraph::operator=(CompiledGraph&&) noexcept = default;
CompiledGraph::~CompiledGraph() = default;

void CompiledGraph::set_param(std::string_view name, const Array& value) {
  Node leaf = find_param(source_, options_.name, name);
  Bindings symbols;
  try {
    bind_leaf(leaf, value, symbols);
  } catch (const UserError& e) {
    throw UserError(fmt::format("{}: {}", options_.name, e.what()));
  }
  executable_->set_param(leaf.name(), value);
  params_set_.insert(leaf.name());
}

void CompiledGraph::set_param_typed(std::string_view name, std::span<const std::byte> bytes, DType dtype) {
  Node leaf = find_param(source_, options_.name, name);
  if (dtype != leaf.dtype())
    throw UserError(fmt::format("{}: param \"{}\": got {}, expected {}", options_.name, name, to_string(dtype), to_string(leaf.type())));
  if (!is_static(leaf.shape()))
    throw UserError(fmt::format("{}: param \"{}\" is {}: set it from an Array, which has a shape", options_.name, name, to_string(leaf.type())));
  Array value(dtype, to_extents(leaf.shape()));
  if (bytes.size() != value.byte_size())
    throw UserError(fmt::format("{}: param \"{}\": got {} bytes ({} elements), expected {} ({})", options_.name, name, bytes.size(),
                                bytes.size() / size_of(dtype), value.byte_size(), to_string(leaf.type())));
  if (!bytes.empty()) std::memcpy(value.bytes(), bytes.data(), bytes.size());
  executable_->set_param(leaf.name(), value);
  params_set_.insert(leaf.name());
}

void CompiledGraph::set_param(std::string_view name, std::span<const float> values) {
  set_param_typed(name, std::as_bytes(values), DType::F32);
}

Array CompiledGraph::param(std::string_view name) const {
  Node leaf = find_param(source_, options_.name, name);
  if (!params_set_.contains(leaf.name())) throw UserError(fmt::format("{}: param \"{}\" is not set", options_.name, name));
  return executable_->param(leaf.name());
}

std::vector<Array> CompiledGraph::run(const ArrayMap& inputs) {
  std::vector<int> all;
  for (std::size_t i = 0; i < source_.outputs().size(); ++i) all.push_back(int(i));
  return run_read_outputs(inputs, all);
}

std::vector<Array> CompiledGraph::run_read_outputs(const ArrayMap& inputs, std::span<const int> outputs) {
  auto fail = [&](const std::string& why) { throw UserError(options_.name + ": " + why); };
  for (int i : outputs)
    if (i < 0 || i >= int(source_.outputs().size())) fail(fmt::format("there is no output {}, the graph has {}", i, source_.outputs().size()));
  for (auto& [name, value] : inputs) {
    Node leaf = source_.find_leaf(name);
    if (!leaf || leaf.op().name != "input") fail(fmt::format("there is no input \"{}\"; it has {}", name, names_of(source_.inputs())));
  }
  for (auto& leaf : source_.params())
    if (!params_set_.contains(leaf.name())) fail(fmt::format("param \"{}\" {} is not set", leaf.name(), to_string(leaf.type())));
  Bindings symbols;
  for (int round = 0; round < 2; ++round)  // a second time, when every symbol that a leaf names is known
    for (auto& leaf : source_.inputs()) {
      auto it = inputs.find(leaf.name());
      if (it == inputs.end()) fail(fmt::format("input \"{}\" {} is missing", leaf.name(), to_string(leaf.type())));
      try {
        bind_leaf(leaf, it->second, symbols);
      } catch (const UserError& e) {
        fail(e.what());
      }
    }
  return executable_->run(inputs, outputs, symbols);
}

std::string CompiledGraph::report() const { return executable_->report(); }

}  // namespace rlx
