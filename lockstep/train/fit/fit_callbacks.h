// The callbacks of one call of Trainer::fit(), and their joint decisions.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "lockstep/strategy/strategy.h"
#include "lockstep/train/callbacks/callback.h"

namespace lockstep::inline v0::train {

/// Calls the callbacks of this rank. Ranks may have different callbacks, so decisions are those of
/// the chief or of any rank, and agreed on by all.
class FitCallbacks {
 public:
  using List = std::vector<std::shared_ptr<Callback>>;

  /// Both must outlive this object.
  FitCallbacks(const strategy::Strategy& strategy, const List& callbacks)
      : strategy_(strategy), callbacks_(callbacks) {}

  /// Agrees whether callbacks change the learning rate. Throws Error (input) if two callbacks of
  /// this rank store their states under one name. Collective.
  void begin();

  /// Calls `hook` for each callback, and passes on the scalars that it logs. `step`: completed
  /// steps.
  template <typename Hook>
  void notify(std::int64_t step, Hook hook) const {
    for (const auto& callback : callbacks_) {
      hook(*callback);
      if (!callback->scalars_.empty()) pass_on(*callback, step);
    }
  }
  /// Calls on_exception(). Never throws.
  void notify(const std::exception& error) const noexcept;

  /// Returns the learning rate of the next step; `scheduled` is that of the schedule. Throws Error
  /// (input) if it is negative or not finite. The same on all ranks. Collective if a callback
  /// changes it.
  float learning_rate(std::int64_t step, float scheduled) const;

  /// Returns the states of the chief's callbacks, by name. The same on all ranks. Collective.
  checkpoint::Configuration states() const;
  /// Restores the callbacks of this rank. Throws Error (checkpoint) for a state that a callback
  /// cannot read.
  void restore(const checkpoint::Configuration& states) const;

 private:
  void pass_on(Callback& from, std::int64_t step) const;

  const strategy::Strategy& strategy_;
  const List& callbacks_;
  bool change_rate_ = false;
};

}  // namespace lockstep::inline v0::train
