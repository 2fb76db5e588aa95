// What DistributedOptimizer does that does not depend on the optimizer in it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "strategy/wrapper/gradient_reducer.h"

namespace lockstep::strategy {

/// A parameter of an optimizer that exists: where its values and its gradient lie, row-major, as long as the optimizer
/// says so. `values` and `gradient` have as many elements as `shape`; an empty shape stands for one dimension.
struct Parameter {
  std::string name;
  std::span<float> values;
  std::span<float> gradient;
  std::vector<std::int64_t> shape = {};
  bool has_gradient = true;  ///< false: this pass gave it none; it counts as zero, whatever lies there
};

/// Moves gradients of parameters that lie anywhere through a GradientReducer, and back. Whoever calls it hands over the
/// same parameters each time; their places may change between calls.
class ParameterExchange {
 public:
  /// Collective; throws like GradientReducer. `workers` outlives this object.
  ParameterExchange(Workers& workers, std::span<const Parameter> parameters, const ReducerOptions& options);

  /// Every rank's values become those of rank `root`. Collective.
  void broadcast_values(std::span<const Parameter> parameters, int root);

  void begin_backward(double samples) { reducer_.begin_pass(samples); }
  /// The gradient of one parameter is complete for this pass.
  void gradient_ready(std::span<const Parameter> parameters, std::size_t parameter);
  /// The pass is over: takes the gradients that were not announced, and clears what it took while more passes follow.
  void backward_done(std::span<const Parameter> parameters, double samples);
  /// Reduces, and writes the results where the gradients lie. Only once a step.
  void synchronize(std::span<const Parameter> parameters);
  /// The same for what there is; false where no rank has any.
  bool synchronize_rest(std::span<const Parameter> parameters);

  GradientReducer& reducer() { return reducer_; }
  const GradientReducer& reducer() const { return reducer_; }

 private:
  void take(const Parameter& parameter, std::size_t index);
  bool watches_changes() const;
  void check_unchanged(std::span<const Parameter> parameters);
  void put_back(std::span<const Parameter> parameters);

  GradientReducer reducer_;
  std::vector<bool> taken_;            // in this pass
  std::vector<std::uint64_t> hashes_;  // of the gradients that the last pass left
};

}  // namespace lockstep::strategy
