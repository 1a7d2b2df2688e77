// From a graph to native code, and running it.
#pragma once
#include <map>
#include <set>

#include "rlx/graph.h"

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

class Executable;  // a backend's

/// A graph made ready for one device. Params are set once and kept; inputs are fed at each run. Every name, length,
/// dtype and shape is checked, and a UserError names the graph, the leaf, what was given and what was expected.
/// One thread at a time may use it.
class CompiledGraph {
 public:
  CompiledGraph(Graph source, CompileOptions options, std::unique_ptr<Executable> executable);
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
  /// Only the outputs listed are copied back.
  std::vector<Array> run_read_outputs(const ArrayMap& inputs, std::span<const int> outputs);
  std::vector<Array> run_read_outputs(const ArrayMap& inputs, std::initializer_list<int> outputs) {
    return run_read_outputs(inputs, std::span<const int>(outputs.begin(), outputs.size()));
  }
  const Graph& source() const { return source_; }
  const std::string& name() const { return options_.name; }
  /// What it will do, for a person: kernels, memory, what the interpreter runs.
  std::string report() const;

 private:
  Graph source_;
  CompileOptions options_;
  std::unique_ptr<Executable> executable_;
  std::set<std::string, std::less<>> params_set_;
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
