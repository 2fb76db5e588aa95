#include "lockstep/strategy/step_recordings.h"

namespace lockstep::strategy {

void StepRecordings::run(std::int64_t samples, std::uint64_t placement, const Put& put) {
  if (placement != placement_) clear();
  placement_ = placement;
  Shape& shape = shapes_[samples];
  const StepKind mine = shape.replay                      ? StepKind::replay
                        : shape.plain_steps < kPlainSteps ? StepKind::plain
                                                          : StepKind::record;
  const StepKind agreed = agree_(mine);
  if (agreed == StepKind::plain) {
    ++shape.plain_steps;
    return put();
  }
  if (agreed == StepKind::replay) return shape.replay();
  shape.replay = record_(put);
}

}  // namespace lockstep::strategy
