// Optimizers on the tensors of one device: what resident training and the host form share.
#pragma once
#include "backends/backend.h"

namespace rlx {

/// One tensor to be stepped.
struct OptimizerJob {
  std::string name;
  const ParamGroup* group = nullptr;
  DeviceTensorPtr tensor, gradient;  // of one type
};

class OptimizerRunner {
 public:
  /// `where` begins its messages.
  OptimizerRunner(Backend& backend, std::string where) : backend_(backend), where_(std::move(where)) {}

  Backend& backend() const { return backend_; }
  /// Compiles what a tensor of this type needs. Throws UserError where the group's optimizer doesn't take it.
  void prepare(const std::string& name, const ParamGroup& group, const Type& type);
  /// All jobs, or none where it throws UserError: a step under 1, state that is missing or doesn't fit.
  void step(const std::vector<OptimizerJob>& jobs, const OptimizerStep& step);

  Tensors state() const;
  /// Checked and used when its tensor is stepped next.
  void set_state(const Tensors& state);
  /// Throws UserError where state was given of a tensor that there is not.
  void check_owners(const std::function<bool(std::string_view)>& is_there) const;
  /// Drops a tensor's state.
  void forget(std::string_view name);
  /// The tensor whose state has this name. Throws UserError where it is no such name.
  std::string_view owner_of(std::string_view state_name) const;

 private:
  struct Part {  // of the state
    std::string prefix;
    Type type;
  };
  // An optimizer for one type of tensor.
  struct Compiled {
    Optimizer optimizer;
    Type type;
    std::vector<Part> parts;
    std::unique_ptr<Executable> executable;
  };
  Compiled& update_of(const Optimizer& optimizer, const Type& type);
  void check_state(const OptimizerJob& job, const Compiled& update, std::int64_t step) const;
  DeviceTensorPtr state_tensor(const std::string& name, const Type& type);
  void run(const OptimizerJob& job, Compiled& update, const OptimizerStep& step);
  [[noreturn]] void fail(const std::string& why) const;

  Backend& backend_;
  std::string where_;
  std::vector<std::unique_ptr<Compiled>> updates_;
  std::map<std::string, DeviceTensorPtr, std::less<>> states_;
  Tensors given_;  // by set_state, not used yet
};

}  // namespace rlx
