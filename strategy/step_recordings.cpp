#include "strategy/step_recordings.h"

namespace lockstep::strategy {

void StepRecordings::run(std::int64_t samples, std::uint64_t placement, const Put& put) {
  if (placement != placement_) clear();
  placement_ = placement;
  Shape& shape = shapes_[samples];
  if (shape.replay) return shape.replay();
  if (shape.plain_steps < kPlainSteps) {
    ++shape.plain_steps;
    return put();
  }
  shape.replay = record_(put);
  shape.replay();
}

}  // namespace lockstep::strategy
