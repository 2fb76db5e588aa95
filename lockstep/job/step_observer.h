// Sees what the steps of a training loop compute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::inline v0::job {

/// Name and shape of a parameter.
struct ObservedParameter {
  std::string name;                      ///< unique in its reducer
  std::vector<std::int64_t> shape = {};  ///< row-major
};

/// Receives the gradients of the reducers of one rank, for checks of a user's training loop; see
/// interop/equivalence.h. Set by Workers::observe(). All spans are in host memory and
/// valid during the call.
class StepObserver {
 public:
  virtual ~StepObserver() = default;

  /// A reducer of `parameters`. Returns its number, the same on all ranks.
  virtual int add_reducer(std::vector<ObservedParameter> parameters) = 0;
  /// The values of a parameter before the first step.
  virtual void on_values(int reducer, std::size_t parameter, std::span<const float> values) = 0;
  /// As above.
  virtual void on_values(int reducer, std::size_t parameter, std::span<const double> values) = 0;
  /// This rank's own gradient, before the reduction. `factor` times it is the mean over its samples
  /// of the step, or the sum over its passes if gradients are summed.
  virtual void on_gradient(int reducer, std::size_t parameter, std::span<const float> gradient,
                           double factor) = 0;
  /// As above.
  virtual void on_gradient(int reducer, std::size_t parameter, std::span<const double> gradient,
                           double factor) = 0;
  /// The result of the reduction.
  virtual void on_reduced(int reducer, std::size_t parameter, std::span<const float> gradient) = 0;
  /// As above.
  virtual void on_reduced(int reducer, std::size_t parameter, std::span<const double> gradient) = 0;
  /// Ends a step, for which the program gave `samples` as the number of samples of this rank.
  /// Collective over the ranks of the reducer, whose communication thread is idle.
  virtual void on_step(int reducer, double samples) = 0;
};

}  // namespace lockstep::inline v0::job
