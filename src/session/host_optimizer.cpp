// Optimizers on arrays of the caller's.
#include <fmt/format.h>

#include <cstring>

#include "session/optimizer_runner.h"

namespace rlx {

HostOptimizer::HostOptimizer(Optimizer optimizer, Device device)
    : HostOptimizer(ParamGroups{{.optimizer = std::move(optimizer)}}, std::move(device)) {}

HostOptimizer::HostOptimizer(ParamGroups groups, Device device)
    : groups_(std::move(groups)),
      runner_(std::make_unique<OptimizerRunner>(*find_backend(Session(device).device().name), "optimizer")) {
  for (auto& group : groups_) check_optimizer(group.optimizer);
}
HostOptimizer::HostOptimizer(HostOptimizer&&) noexcept = default;
HostOptimizer& HostOptimizer::operator=(HostOptimizer&&) noexcept = default;
HostOptimizer::~HostOptimizer() = default;

void HostOptimizer::step(const ArrayMap& params, const ArrayMap& gradients, const OptimizerStep& step) {
  auto on_device = [&](const Array& value) {
    DeviceTensorPtr tensor = runner_->backend().make_tensor(value.dtype(), value.shape());
    tensor->upload(value);
    return tensor;
  };
  runner_->check_owners([&](std::string_view name) { return params.contains(name); });
  std::vector<OptimizerJob> jobs;
  for (auto& [name, gradient] : gradients) {
    auto param = params.find(name);
    if (param == params.end())
      throw UserError(fmt::format("optimizer: there is a gradient of \"{}\" and no such param", name));
    if (gradient.type() != param->second.type())
      throw UserError(fmt::format("optimizer: the gradient of \"{}\" is {}, the param is {}", name,
                                  to_string(gradient.type()), to_string(param->second.type())));
    const ParamGroup& group = group_of(groups_, name, param->second.shape());
    runner_->prepare(name, group, gradient.type());
    jobs.push_back({name, &group, on_device(param->second), on_device(gradient)});
  }
  runner_->step(jobs, step);
  for (auto& job : jobs) {
    Array value = job.tensor->read();
    if (value.byte_size()) std::memcpy(params.find(job.name)->second.bytes(), value.bytes(), value.byte_size());
  }
}

Tensors HostOptimizer::state() const { return runner_->state(); }
void HostOptimizer::set_state(const Tensors& state) { runner_->set_state(state); }

}  // namespace rlx
