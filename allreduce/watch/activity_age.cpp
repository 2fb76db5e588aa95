#include "allreduce/watch/activity_age.h"

namespace lockstep::allreduce {

ReplicaView ActivityAge::look(const ActivityState& state, double now) {
  const bool moved = !seen_ || state.entered != last_.entered || state.left != last_.left;
  if (moved) collective_changed_at_ = now;
  if (moved || state.changes != last_.changes) changed_at_ = now;
  seen_ = true;
  last_ = state;
  return {.state = state, .still_seconds = now - changed_at_, .collective_seconds = now - collective_changed_at_};
}

}  // namespace lockstep::allreduce
