// Time as a watching thread lived through it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "lockstep/allreduce/activity.h"

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

// Whether a process does anything, as the system sees it.

/// For work that calls nothing of ours, such as a program's own preparations or the building of an index: it moves
/// while its threads compute, read or write. A read that never returns, or a lock that is never released, does not.
class ProcessProgress {
 public:
  /// Whether the process has done anything worth mentioning since the last call. The calling thread does not count. By
  /// one thread.
  bool moved();

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point looked_at_ = Clock::now();
  double seconds_ = 0;
  std::uint64_t bytes_ = 0;
};

// Turns looks at an Activity into how long it has been still.

/// One replica as its own process last saw it.
struct ReplicaView {
  ActivityState state;
  double still_seconds = 0;       ///< since anything changed
  double collective_seconds = 0;  ///< since a collective was entered or left
};

/// Follows one replica. Ages are exact to the time between two looks, and never too long.
class ActivityAge {
 public:
  /// `now` in seconds; looks come in the order of time.
  ReplicaView look(const ActivityState& state, double now);

 private:
  bool seen_ = false;
  ActivityState last_;
  double changed_at_ = 0;
  double collective_changed_at_ = 0;
};

}  // namespace lockstep::allreduce
