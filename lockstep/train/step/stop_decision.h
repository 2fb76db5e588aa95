// Decides whether a training ends early or saves: signals, and requests of callbacks.
#pragma once

#include <string>
#include <utility>

#include "lockstep/job/signal/signals.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/train/options/fit_options.h"

namespace lockstep::inline v0::train {

/// The decision is the same on all ranks: a signal or request on any rank takes effect once all
/// ranks have agreed on it. During the lifetime of this object, the signals of the options are
/// recorded instead of ending the process.
class StopDecision {
 public:
  /// Both must outlive this object.
  StopDecision(const strategy::Strategy& strategy, const FitOptions& fit);

  /// Agrees whether callbacks may stop the training after a step. Ranks may have different
  /// callbacks: the chief alone writes logs. Call it once, before the first step. Collective.
  void begin();

  /// The signal that this rank has received; 0 for none.
  int received() const { return signals_.received(); }
  int signal() const { return signal_; }  ///< the signal that the training ends on; 0 for none
  bool by_callback() const { return by_callback_; }  ///< whether a callback ends the training
  std::string reason() const;  ///< reason of a callback on this rank; empty if there is none
  /// Whether a callback of any rank has requested a checkpoint since the last call.
  bool take_save() { return std::exchange(saves_, false); }
  bool is_made() const { return signal_ != 0 || by_callback_; }  ///< whether the training ends

  /// Sets the signal that the ranks have agreed on in a step; 0 for none.
  void set_signal(int signal) { signal_ = signal; }
  /// Whether any rank has received a signal, outside of steps. Collective.
  bool any_received() const { return agreed_signal() != 0; }
  /// Makes the training end on the signal that any rank has received. Collective.
  void agree_on_signal() { signal_ = agreed_signal(); }
  /// Agrees on the requests of callbacks after a step, if they may make any. Collective.
  void after_step() {
    if (callbacks_may_stop_steps_) agree_on_callbacks();
  }
  /// Agrees on the requests of callbacks after an epoch. Collective.
  void agree_on_callbacks();

 private:
  int agreed_signal() const;

  const strategy::Strategy& strategy_;
  const FitOptions& fit_;
  job::SignalWatch signals_;
  bool callbacks_may_stop_steps_ = false;
  int signal_ = 0;
  bool by_callback_ = false;
  bool saves_ = false;
};

}  // namespace lockstep::inline v0::train
