// The interpreter as a device, and the device that compiles and never runs.
#include <fmt/format.h>

#include "backends/backend.h"
#include "ops/eval.h"

namespace rlx {
namespace {

class ReferenceExecutable : public Executable {
 public:
  ReferenceExecutable(const Graph& graph, const CompileOptions& options) : graph_(graph), updates_(options.updates) {}

  void set_param(const std::string& name, const Array& value) override { params_.insert_or_assign(name, value.clone()); }
  Array param(const std::string& name) const override { return params_.at(name).clone(); }

  std::vector<Array> run(const ArrayMap& inputs, std::span<const int> outputs, const Bindings&) override {
    Feeds feeds = params_;
    feeds.insert(inputs.begin(), inputs.end());
    Nodes nodes;
    for (int i : outputs) nodes.push_back(graph_.outputs()[std::size_t(i)]);
    for (auto& u : updates_) nodes.push_back(graph_.outputs()[std::size_t(u.output)]);
    auto values = evaluate(nodes, feeds);
    for (std::size_t i = 0; i < updates_.size(); ++i) set_param(updates_[i].param, values[outputs.size() + i]);
    values.resize(outputs.size());
    for (auto& v : values) v = v.clone();  // an output may be an input or a param
    return values;
  }
  std::string report() const override { return fmt::format("reference: {} nodes, interpreted one by one\n", graph_.size()); }

 private:
  Graph graph_;
  std::vector<Update> updates_;
  Feeds params_;
};

class ReferenceBackend : public Backend {
  std::string name() const override { return "reference"; }
  std::unique_ptr<Executable> compile(const Graph& graph, const CompileOptions& options) override {
    return std::make_unique<ReferenceExecutable>(graph, options);
  }
};

// Wraps the cpu compiler, so that everything but the run is exercised.
class NullExecutable : public Executable {
 public:
  explicit NullExecutable(std::unique_ptr<Executable> inner) : inner_(std::move(inner)) {}
  void set_param(const std::string& name, const Array& value) override { inner_->set_param(name, value); }
  Array param(const std::string& name) const override { return inner_->param(name); }
  std::vector<Array> run(const ArrayMap&, std::span<const int>, const Bindings&) override {
    throw Unsupported("the device null compiles graphs and runs none");
  }
  std::string report() const override { return inner_->report(); }

 private:
  std::unique_ptr<Executable> inner_;
};

class NullBackend : public Backend {
  std::string name() const override { return "null"; }
  std::unique_ptr<Executable> compile(const Graph& graph, const CompileOptions& options) override {
    return std::make_unique<NullExecutable>(find_backend("cpu")->compile(graph, options));
  }
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }
std::unique_ptr<Backend> make_null_backend() { return std::make_unique<NullBackend>(); }

}  // namespace rlx
