// Tracks skipped steps, and detects divergence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/strategy/replica/replica.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep::inline v0::train {

/// A step is skipped if a loss or the reduced gradient is not finite. An overflow of a dynamic loss
/// scale also skips a step, but does not indicate divergence. The same on all ranks.
class StepHealth {
 public:
  /// After this many consecutive skipped steps, a training is considered diverged.
  static constexpr std::int64_t kMaxSkipsInARow = 100;

  /// `strategy` must outlive this object.
  explicit StepHealth(const strategy::Strategy& strategy) : strategy_(strategy) {}

  /// Adds the result of step `step` (from 1), after which the loss scale is `next_scale`. Logs the
  /// 1st, 10th and 100th skipped step in a row on the chief. Returns the reason if the training has
  /// diverged, else nullopt.
  std::optional<std::string> add(const strategy::StepResult& result, std::int64_t step,
                                 float next_scale);

  bool is_healthy() const { return skips_in_a_row_ == 0; }  ///< whether the last step was good
  std::int64_t skips_in_a_row() const { return skips_in_a_row_; }  ///< not counting overflows
  bool last_was_skipped() const { return last_was_skipped_; }      ///< including overflows

  std::int64_t skipped_steps() const {
    return skipped_steps_;
  }  ///< in this run, not counting overflows

  /// Returns the reason if a training that ends now has diverged: its last step was skipped, and no
  /// signal `signal` ended it.
  std::optional<std::string> at_end(int signal) const;

 private:
  std::string reason(const strategy::StepResult& result) const;

  const strategy::Strategy& strategy_;
  std::int64_t skips_in_a_row_ = 0;
  std::int64_t skipped_steps_ = 0;
  bool last_was_skipped_ = false;
};

}  // namespace lockstep::inline v0::train
