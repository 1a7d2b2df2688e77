// From a graph to native code, and running it.
#pragma once
#include <map>
#include <set>

#include "rlx/files.h"
#include "rlx/optim.h"

namespace rlx {

/// Where a graph runs: `cpu`, `reference` (the interpreter), `null` (compiles, never runs), or one that was registered.
struct Device {
  std::string name;
  static Device cpu() { return {"cpu"}; }
  static Device reference() { return {"reference"}; }
  static Device null() { return {"null"}; }
};
/// The devices of this machine.
std::vector<Device> devices();

/// After each run the param holds the value of the output: how a training step changes its weights and moments, and a
/// decoder its cache, without a trip through the caller. The types must be equal.
struct Update {
  std::string param;
  int output = 0;
};

struct CompileOptions {
  std::string name = "graph";      // what errors and traces call it
  std::vector<Update> updates = {};
  bool strict_rounding = false;    // f16 and bf16 chains round after each op, not only where a value is stored
};

using ArrayMap = std::map<std::string, Array, std::less<>>;

/// Which output of a graph is the gradient of which tensor.
using GradientOutputs = std::map<std::string, int, std::less<>>;

class Backend;  // these three are a device's
class DeviceTensor;
class Executable;
class OptimizerRunner;

/// A graph made ready for one device. Params are set once and kept; inputs are fed at each run, but for those that are
/// resident (docs/resident.md). Every name, length, dtype and shape is checked, and a UserError names the graph, the
/// leaf, what was given and what was expected. One thread at a time may use it.
class CompiledGraph {
 public:
  CompiledGraph(Graph source, CompileOptions options, Backend& backend);
  CompiledGraph(CompiledGraph&&) noexcept;
  CompiledGraph& operator=(CompiledGraph&&) noexcept;
  ~CompiledGraph();

  /// An f32 param from its values in row-major order; symbolic dims need the Array form.
  void set_param(std::string_view name, std::span<const float> values);
  void set_param_typed(std::string_view name, std::span<const std::byte> bytes, DType dtype);
  void set_param(std::string_view name, const Array& value);
  /// The value that a param holds now (a copy).
  Array param(std::string_view name) const;
  /// All outputs, in the graph's order. Throws UserError where an input is missing or unknown, or a param is not set.
  std::vector<Array> run(const ArrayMap& inputs);
  /// Only the outputs listed are copied back. The others stay on the device until the next run: read_output and
  /// optimizer_step_resident use them.
  std::vector<Array> run_read_outputs(const ArrayMap& inputs, std::span<const int> outputs);
  std::vector<Array> run_read_outputs(const ArrayMap& inputs, std::initializer_list<int> outputs) {
    return run_read_outputs(inputs, std::span<const int>(outputs.begin(), outputs.size()));
  }
  /// An output of the last run (a copy). Throws UserError where there was none, or where the output is a param's own
  /// value and that has changed since.
  Array read_output(int output);

  /// Puts an input or a param on the device, where it lives between runs: it is not fed, and an optimizer may step it.
  /// Again: it starts anew, without optimizer state. `set_param` gives a resident param a value and leaves its state.
  void bind_resident(std::string_view name, const Array& init);
  /// An f32 leaf from its values in row-major order; symbolic dims need the Array form.
  void bind_resident(std::string_view name, std::span<const float> init);
  void bind_resident(std::string_view name, const std::vector<float>& init) { bind_resident(name, std::span(init)); }
  /// The value that a resident leaf holds now (a copy).
  Array read_resident(std::string_view name) const;
  /// Steps resident tensors in place by their gradients, outputs of the last run. The update is a graph that is
  /// compiled once for each optimizer and type of tensor; nothing passes through the host. State begins at zero with
  /// step 1, stays beside the tensor, and must be given by `set_resident_state` to begin with a later step. Throws
  /// UserError before anything is changed.
  void optimizer_step_resident(const Optimizer& optimizer, const GradientOutputs& gradients, const OptimizerStep& step);
  /// The same, each tensor by the optimizer of its group.
  void optimizer_step_resident(const ParamGroups& groups, const GradientOutputs& gradients, const OptimizerStep& step);
  /// The optimizers' state of all resident tensors, named as the graph form names it (`muon.m.<name>`), copied.
  Tensors resident_state() const;
  /// For checkpoints: what resident_state gave. Throws UserError on a name that ends in no resident tensor's; a wrong
  /// type, or state that its tensor's optimizer doesn't have, is an error of the next step.
  void set_resident_state(const Tensors& state);

  const Graph& source() const { return source_; }
  const std::string& name() const { return options_.name; }
  /// What it will do, for a person: kernels, memory, what the interpreter runs.
  std::string report() const;

 private:
  void hold(Node leaf, const Array& value);
  void check_run(const ArrayMap& inputs, std::span<const int> outputs, Bindings& symbols) const;
  std::shared_ptr<DeviceTensor> last_output(int output);
  Node find_resident(std::string_view name) const;
  void check_gradient(std::string_view name, int output) const;

  Graph source_;
  CompileOptions options_;
  Backend* backend_;
  std::unique_ptr<Executable> executable_;
  std::map<std::string, std::shared_ptr<DeviceTensor>, std::less<>> tensors_;  // params that are set, resident leaves
  std::set<std::string, std::less<>> resident_;
  std::unique_ptr<OptimizerRunner> optimizers_;
};

/// Optimizers for those who hold their own arrays. It runs the graphs that resident tensors are stepped by, so on the
/// same device both give the same bits.
class HostOptimizer {
 public:
  /// Throws UserError on a bad setting or device.
  explicit HostOptimizer(Optimizer optimizer, Device device = Device::cpu());
  explicit HostOptimizer(ParamGroups groups, Device device = Device::cpu());
  HostOptimizer(HostOptimizer&&) noexcept;
  HostOptimizer& operator=(HostOptimizer&&) noexcept;
  ~HostOptimizer();

  /// Writes each param that has a gradient anew, in its own memory. Throws UserError, before anything is changed, on a
  /// gradient without a param, of another type, or a param that its optimizer doesn't take.
  void step(const ArrayMap& params, const ArrayMap& gradients, const OptimizerStep& step);
  /// By name, `adamw.m.<name>`; what the params seen so far have.
  Tensors state() const;
  void set_state(const Tensors& state);

 private:
  ParamGroups groups_;
  std::unique_ptr<OptimizerRunner> runner_;
};

/// Compiles for one device.
class Session {
 public:
  /// Throws UserError that lists the devices where there is none of that name.
  explicit Session(Device device);
  CompiledGraph compile(const Graph& graph, CompileOptions options = {}) const;
  const Device& device() const { return device_; }

 private:
  Device device_;
};

}  // namespace rlx
