// Turns looks at an Activity into how long it has been still.
#pragma once

#include "allreduce/activity.h"

namespace lockstep::allreduce {

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
