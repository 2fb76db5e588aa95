// Averages one rank's gradients over all ranks.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/allreduce/buckets/gradient_buckets.h"
#include "lockstep/device/stream.h"
#include "lockstep/interop/gradient_arrays.h"
#include "lockstep/interop/gradient_layout.h"
#include "lockstep/interop/gradient_math.h"
#include "lockstep/job/step_observer.h"
#include "lockstep/job/workers.h"

namespace lockstep::inline v0::interop {

/// Reduces gradients that were computed outside of Lockstep. DistributedOptimizer and the LibTorch
/// wrappers use it. A step is
///
///     for each of the backward_passes_per_step passes:
///       begin_pass(samples);
///       submit(i, gradient) or submit_in_place(i), for each parameter that has a gradient, in
///           any order;
///       end_pass();
///     reduce();                  // gradient(i) is now the same on all ranks
///     ... the update ...
///     applied();
///
/// With Reduction::average the result is the mean over all samples of the step, in any rank and
/// pass. The gradient of a pass is a mean over its samples, so it is weighted by their number. When
/// ranks are on different nodes, the reduction of a bucket starts when its parameters are complete
/// and overlaps with the last backward pass.
///
/// A call out of order throws an Error (input) that states the expected order. It also ends the
/// group, so that the other ranks throw it too. Parameters without a gradient on this rank count as
/// zero. All ranks call reduce, reduce_partial and applied together. Not thread-safe. Work on GPU
/// gradients is ordered by the stream `compute`.
///
/// float64 gradients are scaled and summed as float64, in one call after the buckets, without
/// overlap or compression.
class GradientReducer {
 public:
  /// Collective. `parameters` are in the order of the forward pass. `workers` and `compute` (null
  /// for gradients on the host) must outlive this object. `math` computes on the device of the
  /// gradients; empty for the host. `where` is the location in error messages. Throws, on all
  /// ranks, Error (input) for invalid options or names and Error (communication) if parameters
  /// differ between ranks.
  GradientReducer(job::Workers& workers, std::vector<ParameterLayout> parameters,
                  const ReducerOptions& options = {}, device::Stream* compute = nullptr,
                  DeviceMath math = {}, std::string where = "distributed_optimizer");

  /// As passed to the constructor.
  const std::vector<ParameterLayout>& parameters() const { return parameters_; }
  const ReducerOptions& options() const { return options_; }  ///< as passed to the constructor
  job::Workers& workers() const { return workers_; }          ///< the ranks that reduce
  /// Whether there is nothing to sum, divide, check or observe: one rank, one pass per step, no
  /// clip_norm, no skip_non_finite and no observer. Then the input gradients are the results. They
  /// are not copied, and gradient(parameter) is meaningless.
  bool is_alone() const;

  /// The gradient of a parameter of type T, float or double, valid as long as this object or its
  /// memory(). Between passes it is the mean over the samples so far, times their number, divided
  /// by the number in the latest pass; after reduce() it is the result.
  template <typename T = float>
  std::span<T> gradient(std::size_t parameter) const {
    return arrays_->gradient<T>(parameter);
  }
  /// Owns all gradients. Hold it to keep a gradient alive.
  std::shared_ptr<const void> memory() const { return arrays_->memory(); }

  /// Begins a backward pass over `samples` samples of this rank: 0 for a rank without samples; 1 on
  /// all ranks for equal weights. Collective in the first step. If gradients are accumulated in
  /// place, call it before they are computed. `is_last`: whether this pass completes the step, the
  /// same on all ranks; by default backward_passes_per_step decides.
  void begin_pass(double samples, std::optional<bool> is_last = {});
  bool is_in_pass() const { return in_pass_; }  ///< whether a pass is open
  /// Whether the open pass, or the next one if none is open, completes the step.
  bool is_last_pass() const {
    return in_pass_ ? is_last_ : passes_ + 1 >= options_.backward_passes_per_step;
  }
  /// Copies `values`, the gradient of `parameter` in this pass. At most once per parameter and
  /// pass.
  void submit(std::size_t parameter, std::span<const float> values);
  /// As above, for a float64 parameter.
  void submit(std::size_t parameter, std::span<const double> values);
  /// Like submit() for a gradient on the host, in a pass with samples, but also copies it if
  /// is_alone(). Returns hash_of() of its bytes (gradient_arrays.h), computed in the same pass over
  /// memory.
  std::uint64_t submit_hashed(std::size_t parameter, std::span<const float> values);
  /// As above, for a float64 parameter.
  std::uint64_t submit_hashed(std::size_t parameter, std::span<const double> values);
  /// Like submit() for a gradient that the caller has already added to gradient(parameter), which
  /// held the sum of earlier passes of this step, or zeros.
  void submit_in_place(std::size_t parameter);
  /// Whether this rank has a gradient of the parameter in this step.
  bool has_gradient_so_far(std::size_t parameter) const { return step_has_[parameter]; }
  /// Whether all passes of the step have ended.
  bool is_complete() const { return is_complete_; }
  /// Ends the pass. Parameters that were not submitted have no gradient.
  void end_pass();
  int passes() const { return passes_; }  ///< number of passes ended in this step

  /// Reduces the remaining buckets, divides and clips. If must_skip(), rank 0 logs a warning that
  /// names the ranks whose gradient on the host is not finite. Throws Error (input) unless all
  /// passes of the step have ended.
  void reduce();
  /// Like reduce(), for an incomplete step at the end of an epoch. The number of passes may differ
  /// between ranks. Returns false, with nothing to apply, if no rank has any.
  bool reduce_partial();
  /// Whether reduce() has been called and applied() has not.
  bool is_reduced() const { return reduced_; }
  /// Ends the step. Throws Error (input) before reduce().
  void applied();

  /// Throws Error (input) if a step is in progress: `call` would then lose gradients.
  void require_between_steps(std::string_view call);
  /// From now on, a call out of order leaves the group and this object unchanged: only this rank
  /// throws, and may make the expected call next.
  void keep_group_on_misuse() { ends_group_on_misuse_ = false; }
  /// Throws Error (input) "[where] expected …, got …"; ends the group before, unless
  /// keep_group_on_misuse() was called.
  [[noreturn]] void usage_error(const std::string& expected, const std::string& actual);

  // Statistics of the last reduced step, the same on all ranks:
  /// Whether any rank had a gradient of the parameter.
  bool has_gradient(std::size_t parameter) const { return counts_[kFlags + parameter] > 0; }
  /// Number of samples over all ranks; for Reduction::sum, of passes.
  double samples() const { return counts_[0]; }
  /// Norm of the gradient before clipping; 0 without clip_norm and skip_non_finite.
  double gradient_norm() const { return gradient_norm_; }
  /// Whether all elements of the gradient are finite; true without clip_norm and skip_non_finite.
  bool is_finite() const { return std::isfinite(gradient_norm_); }
  /// Whether the step must not be applied (skip_non_finite).
  bool must_skip() const { return options_.skip_non_finite && !is_finite(); }
  std::int64_t steps() const { return steps_; }  ///< steps applied

  /// Whether the workers had an observer at construction (job/step_observer.h).
  bool is_observed() const { return observer_ != nullptr; }
  /// Passes the values of a parameter to the observer, if there is one.
  template <typename T>
  void observe_values(std::size_t parameter, std::span<const T> values) const {
    if (observer_) observer_->on_values(observed_as_, parameter, values);
  }

  /// The buckets of gradients.
  const allreduce::GradientBuckets& buckets() const { return *buckets_; }
  /// Seconds since the start in which computation on this rank waited for communication, except for
  /// float64 gradients.
  const allreduce::CommunicationTimes& communication() const { return buckets_->times(); }

 private:
  static constexpr std::size_t kFlags =
      2;  // index in counts_: after samples and passes, one flag per parameter

  template <typename T>
  void submit_values(std::size_t parameter, std::span<const T> values,
                     std::uint64_t* hash = nullptr);
  void sum_wide_gradients();
  void describe_buckets();
  const std::string& expect_gradient(std::size_t parameter);
  void rescale_to(double samples);
  void agree_on_samples();
  double factor_before() const;
  double factor_after() const;
  void complete(std::size_t parameter);
  void complete_remaining(bool is_last_pass);
  void complete_without(std::size_t parameter);
  void finish();
  void finish_average();
  void observe_gradient(std::size_t parameter) const;
  void observe_step();
  void warn_of_skip();
  void warn_of_untrained();

  job::Workers& workers_;
  std::string where_;
  std::vector<ParameterLayout> parameters_;
  ReducerOptions options_;
  device::Stream* compute_;
  std::unique_ptr<GradientArrays> arrays_;  // counts_ are its scalars
  std::unique_ptr<allreduce::GradientBuckets> buckets_;

  std::shared_ptr<job::StepObserver> observer_;  // that of the workers at construction
  int observed_as_ = 0;                          // the number of this reducer for it
  bool ends_group_on_misuse_ = true;
  bool in_pass_ = false;
  bool is_last_ = false;      // whether the open pass completes the step
  bool is_complete_ = false;  // whether the last pass of the step has ended
  bool reduced_ = false;
  int passes_ = 0;
  double pass_samples_ = 0;
  double given_samples_ = 0;          // in this step so far, as the caller gave them
  double unit_ = 0;                   // stored gradients are means over this number of samples
  double weight_ = 0;                 // samples of this step so far
  double expected_ = 0;               // samples of the last step over all ranks; 0 before the first
  std::vector<bool> pass_has_;        // for each parameter: has a gradient in this pass
  std::vector<bool> step_has_;        // for each parameter: has a gradient in this step
  std::vector<std::size_t> missing_;  // for each entry: number of incomplete parameters
  std::vector<float> counts_;
  bool is_own_finite_ = true;  // whether this rank's gradient of this step is finite; host only
  double gradient_norm_ = 0;
  std::int64_t steps_ = 0;
  std::vector<std::int64_t> last_gradient_;  // for each parameter: last step with a gradient
};

}  // namespace lockstep::inline v0::interop
