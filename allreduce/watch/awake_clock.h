// Time as a watching thread lived through it.
#pragma once

#include <algorithm>

namespace lockstep::allreduce {

/// Counts seconds, but of a pause between two readings no more than `longest_pause`: where a whole job was suspended
/// and goes on, nobody is to be blamed for the silence in between.
class AwakeClock {
 public:
  AwakeClock(double start, double longest_pause) : last_(start), longest_pause_(longest_pause) {}

  /// `now`: seconds of a clock that never runs backwards. Returns seconds since the start, pauses cut short.
  double advance(double now) {
    const double pause = std::max(0.0, now - last_);
    last_ = now;
    awake_ += std::min(pause, longest_pause_);
    if (pause > longest_pause_) {
      suspension_ = pause;
      woke_at_ = awake_;
    }
    return awake_;
  }

  /// Seconds of the last pause that was cut short, if it ended less than `seconds` ago; 0 otherwise.
  double recent_suspension(double seconds) const { return awake_ - woke_at_ < seconds ? suspension_ : 0; }

 private:
  double last_;
  double longest_pause_;
  double awake_ = 0;
  double suspension_ = 0;
  double woke_at_ = 0;
};

}  // namespace lockstep::allreduce
