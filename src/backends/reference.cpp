// The interpreter as a device, and the device that compiles and never runs.
#include <fmt/format.h>

#include "backends/backend.h"
#include "ops/eval.h"

namespace rlx {
namespace {

// Values are replaced, never written to, so that the last run's feeds stay what they were.
class HostTensor : public DeviceTensor {
 public:
  explicit HostTensor(Array value) : DeviceTensor(value.dtype(), value.shape()), value_(std::move(value)) {}
  void upload(const Array& value) override { value_ = value.clone(); }
  Array read() const override { return value_.clone(); }
  const Array& value() const { return value_; }
  void replace(Array value) { value_ = std::move(value); }

 private:
  Array value_;
};

class ReferenceExecutable : public Executable {
 public:
  ReferenceExecutable(const Graph& graph, const CompileOptions& options) : graph_(graph), updates_(options.updates) {}

  void bind(const std::string& leaf, DeviceTensorPtr tensor) override {
    leaves_[leaf] = std::static_pointer_cast<HostTensor>(std::move(tensor));
  }

  std::vector<Array> run(const ArrayMap& inputs, std::span<const int> outputs, const Bindings&) override {
    fed_.clear(), results_.clear(), ran_ = false;
    for (auto& [name, tensor] : leaves_) fed_.emplace(name, tensor->value());
    for (auto& [name, value] : inputs) fed_.emplace(name, value.clone());
    Nodes nodes;
    for (int i : outputs) nodes.push_back(graph_.outputs()[std::size_t(i)]);
    for (auto& u : updates_) nodes.push_back(graph_.outputs()[std::size_t(u.output)]);
    auto values = evaluate(nodes, fed_);
    for (std::size_t i = 0; i < updates_.size(); ++i)
      leaves_.at(updates_[i].param)->replace(values[outputs.size() + i].clone());
    values.resize(outputs.size());
    for (auto& v : values) v = v.clone();  // an output may be an input or a param
    ran_ = true;
    return values;
  }
  // All outputs are interpreted once one of them is asked for.
  DeviceTensorPtr result(int output) override {
    if (!ran_) return nullptr;
    if (results_.empty()) results_ = evaluate(graph_.outputs(), fed_);
    return std::make_shared<HostTensor>(results_[std::size_t(output)]);
  }
  std::string report() const override {
    return fmt::format("reference: {} nodes, interpreted one by one\n", graph_.size());
  }

 private:
  Graph graph_;
  std::vector<Update> updates_;
  std::map<std::string, std::shared_ptr<HostTensor>, std::less<>> leaves_;
  Feeds fed_;                   // of the last run
  std::vector<Array> results_;  // of the last run, once asked for
  bool ran_ = false;
};

class ReferenceBackend : public Backend {
  std::string name() const override { return "reference"; }
  std::unique_ptr<Executable> compile(const Graph& graph, const CompileOptions& options) override {
    return std::make_unique<ReferenceExecutable>(graph, options);
  }
  DeviceTensorPtr make_tensor(DType dtype, Extents shape) override {
    return std::make_shared<HostTensor>(Array(dtype, std::move(shape)));
  }
};

// Wraps the cpu compiler, so that everything but the run is exercised.
class NullExecutable : public Executable {
 public:
  explicit NullExecutable(std::unique_ptr<Executable> inner) : inner_(std::move(inner)) {}
  void bind(const std::string& leaf, DeviceTensorPtr tensor) override { inner_->bind(leaf, std::move(tensor)); }
  std::vector<Array> run(const ArrayMap&, std::span<const int>, const Bindings&) override { refuse(); }
  DeviceTensorPtr result(int) override { refuse(); }
  std::string report() const override { return inner_->report(); }

 private:
  [[noreturn]] static void refuse() { throw Unsupported("the device null compiles graphs and runs none"); }
  std::unique_ptr<Executable> inner_;
};

class NullBackend : public Backend {
  std::string name() const override { return "null"; }
  std::unique_ptr<Executable> compile(const Graph& graph, const CompileOptions& options) override {
    return std::make_unique<NullExecutable>(find_backend("cpu")->compile(graph, options));
  }
  DeviceTensorPtr make_tensor(DType dtype, Extents shape) override {
    return find_backend("cpu")->make_tensor(dtype, std::move(shape));
  }
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }
std::unique_ptr<Backend> make_null_backend() { return std::make_unique<NullBackend>(); }

}  // namespace rlx
