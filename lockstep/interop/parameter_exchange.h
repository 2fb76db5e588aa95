// The part of DistributedOptimizer that does not depend on the type of the optimizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/interop/gradient_layout.h"
#include "lockstep/job/workers.h"

namespace lockstep::inline v0::interop {

class GradientReducer;

/// Floats or doubles in the owner's memory; from a std::vector, a std::span, or a pointer.
struct NumberSpan : std::variant<std::span<float>, std::span<double>> {
  using variant::variant;
  /// `count` numbers from `first` on.
  NumberSpan(float* first, std::size_t count) : variant(std::span(first, count)) {}
  /// As above.
  NumberSpan(double* first, std::size_t count) : variant(std::span(first, count)) {}
};

/// A parameter of an existing optimizer: views of its values and its gradient, row-major, both of
/// float or both of double. Both have the number of elements of `shape`; an empty shape stands for
/// one dimension.
struct Parameter {
  std::string name;                      ///< unique among the parameters, the same on all ranks
  NumberSpan values;                     ///< in the owner's memory
  NumberSpan gradient;                   ///< same size as `values`, in the owner's memory
  std::vector<std::int64_t> shape = {};  ///< empty: one dimension
  /// False: no gradient in this pass; counts as zero, `gradient` is ignored.
  bool has_gradient = true;
};

/// Copies gradients into a GradientReducer and the results back. The caller passes the same
/// parameters in each call; their addresses may change between calls.
class ParameterExchange {
 public:
  /// Collective; throws like GradientReducer. `workers` must outlive this object.
  ParameterExchange(job::Workers& workers, std::span<const Parameter> parameters,
                    const ReducerOptions& options);
  ~ParameterExchange();

  /// Copies the values of rank `root` to all ranks. Collective.
  void broadcast_values(std::span<const Parameter> parameters, int root);

  /// Copies the `state` values of rank `root` to all ranks. Only names and values are used. Throws
  /// Error (communication) on all ranks if names or sizes differ. Collective.
  void broadcast_state(std::span<const Parameter> state, int root);

  /// Begins a backward pass over `samples` samples of this rank.
  void begin_backward(std::span<const Parameter> parameters, double samples);
  /// Reports that the gradient of one parameter is complete in this pass.
  void gradient_ready(std::span<const Parameter> parameters, std::size_t parameter);
  /// Ends the pass: copies the gradients that were not reported, and clears the caller's gradients
  /// if more passes follow. Calls begin_backward() with `samples`, by default 1, unless the caller
  /// has.
  void backward_done(std::span<const Parameter> parameters, std::optional<double> samples);
  /// Reduces, and writes the results to the gradients. Once per step. Throws Error (input) if a
  /// gradient has changed since it was reported: the change would affect one rank only.
  void synchronize(std::span<const Parameter> parameters);
  /// As above, for an incomplete step; false if no rank has a gradient.
  bool synchronize_partial(std::span<const Parameter> parameters);

  /// Whether all passes of this step have ended.
  bool is_complete() const;
  /// Whether synchronize() has been called in this step.
  bool is_reduced() const;
  /// Ends the step: its gradients have been applied.
  void applied();
  /// Ends the step without an update. Throws Error (input) before synchronize().
  void discard();
  /// Throws Error (input) if a step is in progress: `call` would then lose gradients.
  void require_between_steps(std::string_view call);

  bool has_gradient(std::size_t parameter) const;   ///< see GradientReducer
  double gradient_norm() const;                     ///< see GradientReducer
  bool is_finite() const;                           ///< see GradientReducer
  bool must_skip() const;                           ///< see GradientReducer
  double samples() const;                           ///< see GradientReducer
  GradientReducer& reducer() { return *reducer_; }  ///< lockstep/interop/gradient_reducer.h

 private:
  /// Hash of a gradient as it was reported in the last pass of a step.
  struct Mark {
    std::size_t parameter;
    std::uint64_t hash;
  };

  void check(std::span<const Parameter> parameters);
  void submit(std::span<const Parameter> parameters, std::size_t parameter);
  void check_unchanged(std::span<const Parameter> parameters);
  void write_back(std::span<const Parameter> parameters);

  std::unique_ptr<GradientReducer> reducer_;
  std::vector<bool> reported_;  // for each parameter: whether this pass has its gradient
  double samples_ = 0;          // samples of this pass
  std::vector<Mark> marks_;     // gradients reported in the last pass of this step
  bool restores_ = false;       // whether write_back() undoes changes by the caller
};

}  // namespace lockstep::inline v0::interop
