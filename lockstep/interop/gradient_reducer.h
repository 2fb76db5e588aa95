// One rank's gradients on their way to their average over all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/allreduce/gradient_buckets.h"
#include "lockstep/device/buffer.h"
#include "lockstep/device/stream.h"
#include "lockstep/interop/gradient_layout.h"
#include "lockstep/interop/gradient_math.h"
#include "lockstep/job/session.h"

namespace lockstep::interop {

/// For whoever computes gradients outside of Lockstep: DistributedOptimizer and the interop with other libraries stand
/// on it. A step is
///
///     for each of the backward_passes_per_step passes:
///       begin_pass(samples);
///       take(i, gradient) or written(i), for each parameter that has a gradient, in any order;
///       end_pass();
///     reduce();                  // gradient(i) is now the same on all ranks
///     ... the update ...
///     applied();
///
/// With Reduction::average the result is the sum over all samples of the step divided by their number, whatever rank
/// and pass they were in: samples of a pass weigh its gradient, which is the mean over them. Where a wire lies between
/// ranks, a bucket is reduced beside the last pass as soon as its parameters are complete.
///
/// Calls in another order are an Error (input) that says which call comes when; it ends the group, so that the other
/// ranks throw it too. Parameters without a gradient on this rank count as zero. All ranks call reduce, reduce_rest and
/// applied together. One thread at a time; gradients of a GPU are put in order by its stream `compute`.
class GradientReducer {
 public:
  /// Collective. Parameters in the order of the forward pass; `workers` and `compute` (null for gradients on the host)
  /// outlive this object. `math` computes where the gradients lie; null for the host. `where`: what errors name. Throws
  /// Error (input) for options or names that cannot be, Error (communication) where ranks have other parameters; the
  /// same on all ranks.
  GradientReducer(job::Workers& workers, std::vector<ParameterLayout> parameters, const ReducerOptions& options = {},
                  device::Stream* compute = nullptr, std::unique_ptr<GradientMath> math = nullptr,
                  std::string where = "distributed_optimizer");

  const std::vector<ParameterLayout>& parameters() const { return parameters_; }  ///< as they were given
  const ReducerOptions& options() const { return options_; }                      ///< as they were given
  job::Workers& workers() const { return workers_; }                              ///< the ranks among which it reduces
  /// Whether there is nothing to add up or to divide: one rank, one pass a step, no clipping. Then the results are the
  /// gradients that were taken; they are not copied, and gradient(parameter) means nothing.
  bool is_alone() const;

  /// Where the gradient of a parameter lies, as long as this object or its memory() lives. Between passes it is a mean
  /// over the samples so far times their number over that of the latest pass; after reduce() the result.
  std::span<float> gradient(std::size_t parameter) const;
  /// Owns all gradients, for those who keep one.
  std::shared_ptr<const void> memory() const { return memory_; }

  /// Opens a backward pass over `samples` samples of this rank: 0 for a rank that takes part without any; all ranks 1
  /// where passes weigh the same. Collective in the first step. To be called before gradients are computed where they
  /// are accumulated in place. `is_last`: whether this pass completes the step, for code that decides so from pass to
  /// pass, the same on all ranks; else backward_passes_per_step does.
  void begin_pass(double samples, std::optional<bool> is_last = {});
  bool is_in_pass() const { return in_pass_; }  ///< whether a pass is open
  /// Whether the pass that is open, or else the next one, completes the step.
  bool is_last_pass() const { return in_pass_ ? is_last_ : passes_ + 1 >= options_.backward_passes_per_step; }
  /// `values` is this pass's gradient of `parameter`; copied. Once a pass for each.
  void take(std::size_t parameter, std::span<const float> values);
  /// The same for a gradient that was added to gradient(parameter) in place: to what earlier passes of this step left
  /// there, or to zeros.
  void written(std::size_t parameter);
  /// Whether this rank has a gradient of the parameter in this step.
  bool has_gradient_so_far(std::size_t parameter) const { return step_has_[parameter]; }
  /// Closes it. Parameters that were not taken had no gradient.
  void end_pass();
  int passes() const { return passes_; }  ///< closed in this step

  /// Reduces what is left, divides and clips. Throws Error (input) unless all passes of the step are done.
  void reduce();
  /// The same for the passes there are, for the end of an epoch: fewer than a step needs on every rank, not
  /// necessarily as many on each. False, and nothing to apply, where no rank has any.
  bool reduce_rest();
  /// Whether reduce() is done and applied() is due.
  bool is_reduced() const { return reduced_; }
  /// The step is over. Throws Error (input) before reduce().
  void applied();

  /// Throws Error (input) if a step has begun and is not over: what `call` would then lose are gradients.
  void require_between_steps(std::string_view call);
  /// Ends the group and throws Error (input) "[where] needed; given".
  [[noreturn]] void misused(const std::string& needed, const std::string& given);

  // Of the step that was reduced last, the same on all ranks:
  /// Whether any rank had a gradient of the parameter.
  bool has_gradient(std::size_t parameter) const { return counts_[kFlags + parameter] > 0; }
  double samples() const { return counts_[0]; }            ///< of all ranks; passes for Reduction::sum
  double gradient_norm() const { return gradient_norm_; }  ///< before clipping; 0 without it
  std::int64_t steps() const { return steps_; }            ///< applied
  /// Parameters that had no gradient on any rank for the last `steps` steps or more.
  std::vector<std::string> parameters_without_gradient(std::int64_t steps) const;

  const allreduce::GradientBuckets& buckets() const { return *buckets_; }  ///< the buckets in which gradients travel
  /// Seconds since the start in which this rank stood still for communication.
  const allreduce::CommunicationTimes& communication() const { return buckets_->times(); }

 private:
  static constexpr std::size_t kFlags = 2;  // in counts_: behind samples and passes, a flag for each parameter

  void describe_buckets();
  void weigh(double samples);
  void agree_on_samples();
  float factor_before() const;
  float factor_after() const;
  void complete(std::size_t parameter);
  void complete_the_rest(bool is_last_pass);
  void complete_without(std::size_t parameter);
  void finish();
  void finish_average();
  void note_missing();

  job::Workers& workers_;
  std::string where_;
  std::vector<ParameterLayout> parameters_;
  ReducerOptions options_;
  GradientLayout layout_;
  std::unique_ptr<GradientMath> math_;
  std::shared_ptr<const device::Buffer> memory_;  // the flat gradient, and counts_ behind it
  std::unique_ptr<allreduce::GradientBuckets> buckets_;

  bool in_pass_ = false;
  bool is_last_ = false;      // the open pass completes the step
  bool is_complete_ = false;  // a pass that does is closed
  bool reduced_ = false;
  int passes_ = 0;
  double pass_samples_ = 0;
  double unit_ = 0;             // what gradients are a mean over, as they lie: samples of the latest pass with any
  double weight_ = 0;           // samples of this step so far
  double expected_ = 0;         // samples of a step over all ranks, as of the last step; 0 before the first
  std::vector<bool> pass_has_;  // for each parameter: a gradient in this pass
  std::vector<bool> step_has_;  // and in this step
  std::vector<std::size_t> missing_;  // of each entry: parameters that are not complete
  std::vector<float> counts_;
  double gradient_norm_ = 0;
  std::int64_t steps_ = 0;
  std::vector<std::int64_t> last_gradient_;  // for each parameter: the last step in which any rank had one
};

}  // namespace lockstep::interop
