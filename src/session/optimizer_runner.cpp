#include "session/optimizer_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace rlx {
namespace {

// What the leaves of an update are called.
constexpr const char* kParam = "param";
constexpr const char* kGradient = "gradient";
constexpr const char* kRate = "learning_rate";
constexpr const char* kDecay = "weight_decay";
constexpr const char* kStep = "step";

DType scalar_dtype(const Type& type) { return type.dtype == DType::F64 ? DType::F64 : DType::F32; }

}  // namespace

void OptimizerRunner::fail(const std::string& why) const { throw UserError(fmt::format("{}: {}", where_, why)); }

std::string_view OptimizerRunner::owner_of(std::string_view state_name) const {
  auto first = state_name.find('.');
  auto second = first == state_name.npos ? first : state_name.find('.', first + 1);
  if (second == state_name.npos || second + 1 == state_name.size())
    fail(fmt::format("\"{}\" is no name of optimizer state, expected <optimizer>.<part>.<tensor>", state_name));
  return state_name.substr(second + 1);
}

OptimizerRunner::Compiled& OptimizerRunner::update_of(const Optimizer& optimizer, const Type& type) {
  for (auto& u : updates_)
    if (u->optimizer == optimizer && u->type == type) return *u;
  auto update = std::make_unique<Compiled>(Compiled{optimizer, type, {}, nullptr});
  Graph graph;
  auto scalar = [&](const char* name) { return graph.input(name, scalar_dtype(type), {}); };
  Node param = graph.param(kParam, type), gradient = graph.input(kGradient, type);
  StepNodes nodes{scalar(kRate), scalar(kDecay), scalar(kStep)};
  std::vector<StateNode> states;
  Nodes outputs{optimizer_update(optimizer, param, gradient, nodes, states)};
  CompileOptions options{.name = fmt::format("{} {}", optimizer_name(optimizer), to_string(type)),
                         .updates = {{kParam, 0}}};
  for (auto& s : states) {
    options.updates.push_back({s.param.name(), int(outputs.size())});
    outputs.push_back(s.next);
    std::string prefix = s.param.name();
    update->parts.push_back({prefix.substr(0, prefix.size() - std::string_view(kParam).size()), s.param.type()});
  }
  graph.set_outputs(outputs);
  update->executable = backend_.compile(graph, options);
  updates_.push_back(std::move(update));
  return *updates_.back();
}

void OptimizerRunner::prepare(const std::string& name, const ParamGroup& group, const Type& type) {
  try {
    update_of(group.optimizer, type);
  } catch (const UserError& e) {
    fail(fmt::format("\"{}\" {}: {}", name, to_string(type), e.what()));
  }
}

void OptimizerRunner::check_state(const OptimizerJob& job, const Compiled& update, std::int64_t step) const {
  std::string expected;
  for (auto& part : update.parts) {
    std::string name = part.prefix + job.name;
    expected += (expected.empty() ? "" : ", ") + fmt::format("\"{}\"", name);
    if (auto it = given_.find(name); it != given_.end()) {
      if (it->second.type() != part.type)
        fail(fmt::format("state \"{}\" is {}, expected {}", name, to_string(it->second.type()), to_string(part.type)));
    } else if (!states_.contains(name) && step != 1) {
      fail(fmt::format(
          "step {} of \"{}\" by {} has no state \"{}\": it begins with step 1, or with the state of the step before",
          step, job.name, optimizer_name(update.optimizer), name));
    }
  }
  for (auto& [name, value] : given_) {
    bool known = std::ranges::any_of(update.parts, [&](auto& part) { return name == part.prefix + job.name; });
    if (owner_of(name) == job.name && !known)
      fail(fmt::format("state \"{}\" was set, {} has {}", name, optimizer_name(update.optimizer),
                       expected.empty() ? "none" : expected));
  }
}

void OptimizerRunner::step(const std::vector<OptimizerJob>& jobs, const OptimizerStep& step) {
  if (step.step < 1) fail(fmt::format("got step {}, expected one from 1", step.step));
  for (auto& value : {step.learning_rate, step.weight_decay})
    if (value && !std::isfinite(*value))
      fail(fmt::format("got {} as learning rate or weight decay, expected a finite number", *value));
  std::vector<Compiled*> updates;
  for (auto& job : jobs) {
    updates.push_back(&update_of(job.group->optimizer, job.tensor->type()));
    check_state(job, *updates.back(), step.step);
  }
  for (std::size_t i = 0; i < jobs.size(); ++i) run(jobs[i], *updates[i], step);
}

DeviceTensorPtr OptimizerRunner::state_tensor(const std::string& name, const Type& type) {
  auto& tensor = states_[name];
  if (!tensor) tensor = backend_.make_tensor(type.dtype, to_extents(type.shape));
  if (auto it = given_.find(name); it != given_.end()) {
    tensor->upload(it->second);
    given_.erase(it);
  }
  return tensor;
}

void OptimizerRunner::run(const OptimizerJob& job, Compiled& update, const OptimizerStep& step) {
  update.executable->bind(kParam, job.tensor);
  update.executable->bind(kGradient, job.gradient);
  for (auto& part : update.parts)
    update.executable->bind(part.prefix + kParam, state_tensor(part.prefix + job.name, part.type));
  OptimizerStep usual = default_step(update.optimizer);
  double rate = step.learning_rate.value_or(*usual.learning_rate) * job.group->learning_rate_factor;
  double decay = job.group->weight_decay ? step.weight_decay.value_or(*usual.weight_decay) : 0;
  auto scalar = [&](double v) { return Array::scalar(v, scalar_dtype(update.type)); };
  ArrayMap scalars{{kRate, scalar(rate)}, {kDecay, scalar(decay)}, {kStep, scalar(double(step.step))}};
  update.executable->run(scalars, {}, {});
}

Tensors OptimizerRunner::state() const {
  Tensors out;
  for (auto& [name, tensor] : states_) out.emplace(name, tensor->read());
  for (auto& [name, value] : given_) out.insert_or_assign(name, value);
  return out;
}

void OptimizerRunner::set_state(const Tensors& state) {
  for (auto& [name, value] : state) owner_of(name);
  for (auto& [name, value] : state) given_.insert_or_assign(name, value.clone());
}

void OptimizerRunner::check_owners(const std::function<bool(std::string_view)>& is_there) const {
  for (auto& [name, value] : given_)
    if (!is_there(owner_of(name)))
      fail(fmt::format("there is state \"{}\" and no tensor \"{}\"", name, owner_of(name)));
}

void OptimizerRunner::forget(std::string_view name) {
  std::erase_if(states_, [&](auto& s) { return owner_of(s.first) == name; });
  std::erase_if(given_, [&](auto& s) { return owner_of(s.first) == name; });
}

}  // namespace rlx
