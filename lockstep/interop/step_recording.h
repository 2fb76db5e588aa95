// Records the steps of a training loop, or compares them with a recording.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/job/step_observer.h"
#include "lockstep/job/workers.h"

namespace lockstep::inline v0::interop {

/// The numbers of all parameters of a reducer, in their order.
struct ParameterNumbers {
  std::vector<std::vector<double>> arrays{};  ///< by parameter

  void set(std::size_t parameter, std::span<const float> values, double factor = 1);   ///< copies
  void set(std::size_t parameter, std::span<const double> values, double factor = 1);  ///< copies
  /// All numbers, one parameter after another.
  std::vector<double> flat() const;
};

/// A reducer and its steps.
struct RecordedReducer {
  /// A step.
  struct Step {
    double samples = 0;          ///< on this rank
    ParameterNumbers reduced{};  ///< the reduced gradient
  };

  std::vector<job::ObservedParameter> parameters{};  ///< in their order
  ParameterNumbers values{};                         ///< before the first step; may be empty
  std::vector<std::uint64_t> hashes{};               ///< hash_of() `values`, by parameter
  std::vector<Step> steps{};                         ///< the first steps
  std::int64_t made = 0;                             ///< number of steps
};

/// The first step that differs from a recording.
struct StepDifference {
  int reducer = 0;             ///< number of the reducer
  std::int64_t step = 0;       ///< from 1
  std::size_t parameter = 0;   ///< the first that differs on the first rank
  double difference = 0;       ///< relative to the norm of its recorded gradient; 0: samples differ
  double samples = 0;          ///< on this rank
  ParameterNumbers own{};      ///< this rank's gradient: a mean over its samples of the step
  ParameterNumbers reduced{};  ///< the reduced gradient on this rank
};

/// The steps of the loop on one rank, or on all.
class StepRecording final : public job::StepObserver {
 public:
  /// Records the first `steps` steps of each reducer.
  explicit StepRecording(int steps) : limit_(steps) {}
  /// Compares with `reference` on the first rank of `ranks`; the others learn where it differs.
  /// Both outlive this object.
  StepRecording(int steps, const StepRecording& reference, job::Workers& ranks, double tolerance)
      : limit_(steps), reference_(&reference), ranks_(&ranks), tolerance_(tolerance) {}

  /// By number.
  const std::vector<RecordedReducer>& reducers() const { return reducers_; }
  /// The first step that differs; nullopt if none does.
  const std::optional<StepDifference>& difference() const { return difference_; }

  int add_reducer(std::vector<job::ObservedParameter> parameters) override;  ///< from 0
  void on_values(int reducer, std::size_t parameter, std::span<const float> values) override;
  void on_values(int reducer, std::size_t parameter, std::span<const double> values) override;
  void on_gradient(int reducer, std::size_t parameter, std::span<const float> gradient,
                   double factor) override;
  void on_gradient(int reducer, std::size_t parameter, std::span<const double> gradient,
                   double factor) override;
  void on_reduced(int reducer, std::size_t parameter, std::span<const float> gradient) override;
  void on_reduced(int reducer, std::size_t parameter, std::span<const double> gradient) override;
  void on_step(int reducer, double samples) override;

 private:
  RecordedReducer& at(int reducer) { return reducers_[static_cast<std::size_t>(reducer)]; }
  bool records(int reducer) const;
  std::optional<StepDifference> compared(int reducer, double samples) const;

  int limit_;
  const StepRecording* reference_ = nullptr;
  job::Workers* ranks_ = nullptr;
  double tolerance_ = 0;
  std::vector<RecordedReducer> reducers_;
  std::vector<ParameterNumbers> own_;      // by reducer: of the current step
  std::vector<ParameterNumbers> reduced_;  // by reducer: of the current step
  std::optional<StepDifference> difference_;
};

}  // namespace lockstep::inline v0::interop
