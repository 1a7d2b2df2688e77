// The checks that every device shares, before a backend sees a name or a value.
#include "rlx/session.h"

#include <fmt/format.h>

#include "backends/backend.h"
#include "ops/eval.h"
#include "session/optimizer_runner.h"

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

Node find_bindable(const Graph& graph, const std::string& graph_name, std::string_view name) {
  Node leaf = graph.find_leaf(name);
  if (!leaf || !(leaf.is(param_op) || leaf.is(input_op)))
    throw UserError(fmt::format("{}: there is no input or param \"{}\"; it has inputs {} and params {}", graph_name,
                                name, names_of(graph.inputs()), names_of(graph.params())));
  return leaf;
}

void check_updates(const Graph& graph, const CompileOptions& options) {
  for (auto& u : options.updates) {
    Node param = find_param(graph, options.name, u.param);
    if (u.output < 0 || u.output >= int(graph.outputs().size()))
      throw UserError(fmt::format("{}: the update of \"{}\" is output {}, the graph has {}", options.name, u.param,
                                  u.output, graph.outputs().size()));
    Node out = graph.outputs()[std::size_t(u.output)];
    if (out.type() != param.type())
      throw UserError(fmt::format("{}: the update of \"{}\" is {}, the param is {}", options.name, u.param,
                                  to_string(out.type()), to_string(param.type())));
  }
}

// A copy that nothing else shares, so that building on in the source changes no compiled graph.
Graph snapshot(const Graph& graph) {
  Graph out;
  Nodes copies = copy_nodes(graph, out), outputs;
  for (auto& o : graph.outputs()) outputs.push_back(copies[std::size_t(o.id())]);
  out.set_outputs(std::move(outputs));
  return out;
}

// An array over bytes that a leaf is given as.
Array array_for(Node leaf, const std::string& graph_name, std::span<const std::byte> bytes, DType dtype) {
  auto fail = [&](const std::string& why) {
    throw UserError(fmt::format("{}: {} \"{}\"{}", graph_name, leaf.op().name, leaf.name(), why));
  };
  if (dtype != leaf.dtype()) fail(fmt::format(": got {}, expected {}", to_string(dtype), to_string(leaf.type())));
  if (!is_static(leaf.shape()))
    fail(fmt::format(" is {}: set it from an Array, which has a shape", to_string(leaf.type())));
  Array value = Array::borrow(const_cast<std::byte*>(bytes.data()), dtype, to_extents(leaf.shape()));
  if (bytes.size() != value.byte_size())
    fail(fmt::format(": got {} bytes ({} elements), expected {} ({})", bytes.size(), bytes.size() / size_of(dtype),
                     value.byte_size(), to_string(leaf.type())));
  return value;
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
  return CompiledGraph(snapshot(graph), std::move(options), *find_backend(device_.name));
}

CompiledGraph::CompiledGraph(Graph source, CompileOptions options, Backend& backend)
    : source_(std::move(source)),
      options_(std::move(options)),
      backend_(&backend),
      executable_(backend.compile(source_, options_)),
      optimizers_(std::make_unique<OptimizerRunner>(backend, options_.name)) {}
CompiledGraph::CompiledGraph(CompiledGraph&&) noexcept = default;
CompiledGraph& CompiledGraph::operator=(CompiledGraph&&) noexcept = default;
CompiledGraph::~CompiledGraph() = default;

// Checks a value and puts it on the device, where the leaf has its memory from then on.
void CompiledGraph::hold(Node leaf, const Array& value) {
  Bindings symbols;
  try {
    bind_leaf(leaf, value, symbols);
  } catch (const UserError& e) {
    throw UserError(fmt::format("{}: {}", options_.name, e.what()));
  }
  auto& tensor = tensors_[leaf.name()];
  if (!tensor || tensor->shape() != value.shape()) {
    if (tensor) optimizers_->forget(leaf.name());
    tensor = backend_->make_tensor(value.dtype(), value.shape());
    executable_->bind(leaf.name(), tensor);
  }
  tensor->upload(value);
}

void CompiledGraph::set_param(std::string_view name, const Array& value) {
  hold(find_param(source_, options_.name, name), value);
}

void CompiledGraph::set_param_typed(std::string_view name, std::span<const std::byte> bytes, DType dtype) {
  Node leaf = find_param(source_, options_.name, name);
  hold(leaf, array_for(leaf, options_.name, bytes, dtype));
}

void CompiledGraph::set_param(std::string_view name, std::span<const float> values) {
  set_param_typed(name, std::as_bytes(values), DType::F32);
}

Array CompiledGraph::param(std::string_view name) const {
  Node leaf = find_param(source_, options_.name, name);
  auto it = tensors_.find(leaf.name());
  if (it == tensors_.end()) throw UserError(fmt::format("{}: param \"{}\" is not set", options_.name, name));
  return it->second->read();
}

std::vector<Array> CompiledGraph::run(const ArrayMap& inputs) {
  std::vector<int> all;
  for (std::size_t i = 0; i < source_.outputs().size(); ++i) all.push_back(int(i));
  return run_read_outputs(inputs, all);
}

std::vector<Array> CompiledGraph::run_read_outputs(const ArrayMap& inputs, std::span<const int> outputs) {
  Bindings symbols;
  check_run(inputs, outputs, symbols);
  return executable_->run(inputs, outputs, symbols);
}

void CompiledGraph::check_run(const ArrayMap& inputs, std::span<const int> outputs, Bindings& symbols) const {
  auto fail = [&](const std::string& why) { throw UserError(options_.name + ": " + why); };
  for (int i : outputs)
    if (i < 0 || i >= int(source_.outputs().size()))
      fail(fmt::format("there is no output {}, the graph has {}", i, source_.outputs().size()));
  for (auto& [name, value] : inputs) {
    if (resident_.contains(name))
      fail(fmt::format("\"{}\" is resident and cannot be fed: bind_resident gives it another value", name));
    Node leaf = source_.find_leaf(name);
    if (!leaf || leaf.op().name != "input")
      fail(fmt::format("there is no input \"{}\"; it has {}", name, names_of(source_.inputs())));
  }
  Nodes params = source_.params(), fed_leaves = source_.inputs();
  for (int round = 0; round < 2; ++round)  // a second time, when every symbol that a leaf names is known
    for (auto* leaves : {&params, &fed_leaves})
      for (auto& leaf : *leaves) {
        auto held = tensors_.find(leaf.name());
        if (held != tensors_.end() && is_static(leaf.shape())) continue;  // checked when it was set
        auto fed = inputs.find(leaf.name());
        if (held == tensors_.end() && fed == inputs.end())
          fail(fmt::format("{} \"{}\" {} is {}", leaf.op().name, leaf.name(), to_string(leaf.type()),
                           leaf.is(param_op) ? "not set" : "missing"));
        try {
          bind_leaf(leaf,
                    held != tensors_.end() ? Array::borrow(nullptr, held->second->dtype(), held->second->shape())
                                           : fed->second,
                    symbols);
        } catch (const UserError& e) {
          fail(e.what());
        }
      }
}

Array CompiledGraph::read_output(int output) {
  if (output < 0 || output >= int(source_.outputs().size()))
    throw UserError(
        fmt::format("{}: there is no output {}, the graph has {}", options_.name, output, source_.outputs().size()));
  return last_output(output)->read();
}

std::shared_ptr<DeviceTensor> CompiledGraph::last_output(int output) {
  if (auto tensor = executable_->result(output)) return tensor;
  throw UserError(fmt::format(
      "{}: output {} is not there: there was no run, or it is a param's own value and that has changed since",
      options_.name, output));
}

// ---------------------------------------------------------------------------------------------- resident tensors

void CompiledGraph::bind_resident(std::string_view name, const Array& init) {
  Node leaf = find_bindable(source_, options_.name, name);
  hold(leaf, init);
  optimizers_->forget(leaf.name());
  resident_.insert(leaf.name());
}

void CompiledGraph::bind_resident(std::string_view name, std::span<const float> init) {
  Node leaf = find_bindable(source_, options_.name, name);
  bind_resident(name, array_for(leaf, options_.name, std::as_bytes(init), DType::F32));
}

Node CompiledGraph::find_resident(std::string_view name) const {
  Node leaf = find_bindable(source_, options_.name, name);
  if (!resident_.contains(leaf.name()))
    throw UserError(fmt::format("{}: {} \"{}\" {} is not resident: bind_resident puts it on the device", options_.name,
                                leaf.op().name, name, to_string(leaf.type())));
  return leaf;
}

Array CompiledGraph::read_resident(std::string_view name) const {
  return tensors_.find(find_resident(name).name())->second->read();
}

void CompiledGraph::check_gradient(std::string_view name, int output) const {
  Node leaf = find_resident(name);
  auto fail = [&](const std::string& why) {
    throw UserError(fmt::format("{}: the gradient of \"{}\" is output {}, {}", options_.name, name, output, why));
  };
  if (output < 0 || output >= int(source_.outputs().size()))
    fail(fmt::format("the graph has {}", source_.outputs().size()));
  Type gradient = source_.outputs()[std::size_t(output)].type(), type = tensors_.find(name)->second->type();
  bool fits = gradient.dtype == type.dtype && gradient.shape.size() == type.shape.size();
  for (std::size_t d = 0; fits && d < type.shape.size(); ++d)
    fits = !gradient.shape[d].is_number() || gradient.shape[d] == type.shape[d];
  if (!fits) fail(fmt::format("{}, the {} is {}", to_string(gradient), leaf.op().name, to_string(type)));
}

void CompiledGraph::optimizer_step_resident(const Optimizer& optimizer, const GradientOutputs& gradients,
                                            const OptimizerStep& step) {
  optimizer_step_resident(ParamGroups{{.optimizer = optimizer}}, gradients, step);
}

void CompiledGraph::optimizer_step_resident(const ParamGroups& groups, const GradientOutputs& gradients,
                                            const OptimizerStep& step) {
  if (gradients.empty()) throw UserError(options_.name + ": there are no gradients to step by");
  std::vector<OptimizerJob> jobs;
  for (auto& [name, output] : gradients) {
    check_gradient(name, output);
    auto& tensor = tensors_.find(name)->second;
    const ParamGroup& group = group_of(groups, name, tensor->shape());
    optimizers_->prepare(name, group, tensor->type());
    jobs.push_back({name, &group, tensor, nullptr});
  }
  for (auto& job : jobs) {
    int output = gradients.find(job.name)->second;
    job.gradient = last_output(output);
    if (job.gradient->shape() != job.tensor->shape())
      throw UserError(fmt::format("{}: the gradient of \"{}\" is output {}, {}, the tensor is {}", options_.name,
                                  job.name, output, to_string(job.gradient->type()), to_string(job.tensor->type())));
  }
  optimizers_->step(jobs, step);
}

Tensors CompiledGraph::resident_state() const { return optimizers_->state(); }

void CompiledGraph::set_resident_state(const Tensors& state) {
  for (auto& [name, value] : state) find_resident(optimizers_->owner_of(name));
  optimizers_->set_state(state);
}

std::string CompiledGraph::report() const {
  std::string out = executable_->report();
  for (auto& name : resident_) {
    const DeviceTensor& tensor = *tensors_.find(name)->second;
    out += fmt::format("resident: {} {}\n", name, to_string(tensor.type()));
  }
  return out;
}

}  // namespace rlx
