// What DistributedOptimizer does that does not depend on the optimizer in it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/interop/gradient_reducer.h"

namespace lockstep::interop {

/// A parameter of an optimizer that exists: where its values and its gradient lie, row-major, as long as the optimizer
/// says so. `values` and `gradient` have as many elements as `shape`; an empty shape stands for one dimension.
struct Parameter {
  std::string name;                      ///< its own among the parameters, the same on all ranks
  std::span<float> values;               ///< in the owner's memory
  std::span<float> gradient;             ///< as large as `values`, in the owner's memory
  std::vector<std::int64_t> shape = {};  ///< row-major; flat where it is empty
  bool has_gradient = true;              ///< false: this pass gave it none; it counts as zero, whatever lies there
};

/// Moves gradients of parameters that lie anywhere through a GradientReducer, and back. Whoever calls it hands over the
/// same parameters each time; their places may change between calls.
class ParameterExchange {
 public:
  /// Collective; throws like GradientReducer. `workers` outlives this object.
  ParameterExchange(job::Workers& workers, std::span<const Parameter> parameters, const ReducerOptions& options);

  /// Every rank's values become those of rank `root`. Collective.
  void broadcast_values(std::span<const Parameter> parameters, int root);

  /// Every rank's `state`, of which only names and values matter, becomes that of rank `root`. Throws Error
  /// (communication) on all ranks where theirs are called otherwise or of other sizes. Collective.
  void broadcast_state(std::span<const Parameter> state, int root);

  /// Opens a backward pass over `samples` samples of this rank.
  void begin_backward(std::span<const Parameter> parameters, double samples);
  /// The gradient of one parameter is there and complete for this pass.
  void gradient_ready(std::span<const Parameter> parameters, std::size_t parameter);
  /// The pass is over: takes the gradients that were not announced, and clears what it took while more passes follow.
  /// `samples` as for begin_backward, which it calls where nobody has; 1 where neither was told.
  void backward_done(std::span<const Parameter> parameters, std::optional<double> samples);
  /// Reduces, and writes the results where the gradients lie. Only once a step.
  void synchronize(std::span<const Parameter> parameters);
  /// The same for what there is; false where no rank has any.
  bool synchronize_rest(std::span<const Parameter> parameters);

  GradientReducer& reducer() { return reducer_; }              ///< what reduces the gradients
  const GradientReducer& reducer() const { return reducer_; }  ///< what reduces the gradients

 private:
  /// A gradient that the last pass left.
  struct Mark {
    std::size_t parameter;
    std::uint64_t hash;
  };

  void check(std::span<const Parameter> parameters);
  bool watches_changes() const;
  void check_unchanged(std::span<const Parameter> parameters);
  void put_back(std::span<const Parameter> parameters);

  GradientReducer reducer_;
  std::vector<bool> taken_;  // in this pass
  double samples_ = 0;       // of it
  std::vector<Mark> marks_;
};

}  // namespace lockstep::interop
