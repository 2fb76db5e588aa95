// A clock without suspensions, and the progress of processes and replicas.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "lockstep/allreduce/activity.h"

namespace lockstep::inline v0::allreduce {

/// Counts seconds, but at most `longest_pause` between two readings. After a whole job was
/// suspended and resumed, no rank is therefore reported as silent.
class AwakeClock {
 public:
  /// `start`: seconds of a monotonic clock.
  AwakeClock(double start, double longest_pause) : last_(start), longest_pause_(longest_pause) {}

  /// `now`: seconds of a monotonic clock. Returns seconds since the start, with long pauses
  /// shortened.
  double advance(double now) {
    const double pause = std::max(0.0, now - last_);
    last_ = now;
    awake_ += std::min(pause, longest_pause_);
    if (pause > longest_pause_) {
      suspension_ = pause;
      resumed_at_ = awake_;
    }
    return awake_;
  }

  /// Length of the last shortened pause if it ended less than `seconds` ago; else 0.
  double recent_suspension(double seconds) const {
    return awake_ - resumed_at_ < seconds ? suspension_ : 0;
  }

 private:
  double last_;
  double longest_pause_;
  double awake_ = 0;
  double suspension_ = 0;
  double resumed_at_ = 0;
};

// Progress of a process, as seen by the operating system.

/// For work without calls on an Activity, such as a program's own preparations or building an
/// index. Threads that compute, read or write are progress; a read that never returns, or a lock
/// that is never released, is not.
class ProcessProgress {
 public:
  /// Whether the process has made progress since the last call. The calling thread does not count.
  /// Always called by the same thread.
  bool made_progress();

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point checked_at_ = Clock::now();
  double seconds_ = 0;
  std::uint64_t bytes_ = 0;
};

// Ages of an Activity.

/// Added to the number of collectives of a rank that has reached the end of its session
/// (job/session.h): more than any rank enters before, so that ranks that have not reached their end
/// count as late.
inline constexpr std::uint64_t kCollectivesBeforeTheEnd = std::uint64_t{1} << 62;

/// Whether the program runs its own code in `phase`, rather than a training of this library, which
/// reports its own progress.
inline bool is_outside_training(Phase phase) {
  return phase == Phase::idle || phase == Phase::starting || phase == Phase::ending;
}

/// The last known state of one replica, or of a rank in a group of ranks.
struct ReplicaView {
  ActivityState state;            ///< as its process last reported it
  double still_seconds = 0;       ///< since anything changed, or its process made progress
  double unreported_seconds = 0;  ///< since a call on the Activity
  double collective_seconds = 0;  ///< since a collective was entered or left
  RankGroup group = {};           ///< number 0: a replica
};

/// A process is as active in each of its groups as it is in all of them, in the phase of its first
/// replica, and in its step unless a group has its own. `views`: all views of one process.
void combine_groups(std::vector<ReplicaView>& views);

/// Computes the ages of one replica. They are exact to within the time between two calls of
/// update(), and never too long.
class ActivityAge {
 public:
  /// `now` is in seconds and does not decrease. `process_made_progress`: whether the replica's
  /// process made progress that counts for it.
  ReplicaView update(const ActivityState& state, double now, bool process_made_progress = false);

 private:
  bool seen_ = false;
  ActivityState last_;
  double changed_at_ = 0;
  double reported_at_ = 0;
  double collective_changed_at_ = 0;
};

}  // namespace lockstep::inline v0::allreduce
