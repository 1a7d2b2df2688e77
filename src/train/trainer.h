// The compiled training step.
#pragma once
#include "rlx/train.h"
#include "train/model.h"

namespace rlx {

/// Forward, backward, clipping and the optimizer's update as one graph. Inputs: tokens i32 [accumulation * batch,
/// context + 1], learning_rate, muon_learning_rate, weight_decay and step (counts from 1), all f32 []. Outputs: the
/// mean loss, the gradients' norm before clipping, and what the updates carry on.
struct StepGraph {
  Graph graph;
  std::vector<Update> updates;
  std::vector<std::string> states;  // the optimizer's params
};
StepGraph step_graph(const TrainConfig&);

struct StepResult {
  double loss = 0, gradient_norm = 0;
};

class Trainer {
 public:
  Trainer(const TrainConfig&, Device);
  void set_weights(const Tensors&);
  /// Empty: zeros, as before the first step. Throws UserError on a tensor that is missing, unknown or of another shape.
  void set_optimizer(const Tensors&, const std::string& where);
  Tensors weights() const;
  Tensors optimizer() const;
  /// Takes step `step`, counted from 0, of `steps`.
  StepResult run_step(const Array& tokens, std::int64_t step, std::int64_t steps);
  double learning_rate_at(std::int64_t step, std::int64_t steps) const;

 private:
  const TrainConfig config_;
  StepGraph step_;
  CompiledGraph graph_;
};

}  // namespace rlx
