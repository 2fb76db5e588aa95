#include "lockstep/strategy/replica/step_recordings.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/device/recording.h"

namespace lockstep::inline v0::strategy {
namespace {

/// Recorded operations do not synchronize with the other members.
class RecordingScope {
 public:
  explicit RecordingScope(const allreduce::Communicator& group) : group_(group) {
    group_.set_recording(true);
  }
  ~RecordingScope() { group_.set_recording(false); }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  const allreduce::Communicator& group_;
};

/// The host's part of reductions runs between pieces of a recording.
class PausingScope {
 public:
  PausingScope(allreduce::GradientBuckets& buckets, device::Recorder& recorder)
      : buckets_(buckets) {
    buckets_.set_host_runner(
        [&recorder](std::function<void()> on_host) { recorder.pause(std::move(on_host)); });
  }
  ~PausingScope() { buckets_.set_host_runner({}); }
  PausingScope(const PausingScope&) = delete;
  PausingScope& operator=(const PausingScope&) = delete;

 private:
  allreduce::GradientBuckets& buckets_;
};

}  // namespace

StepKind agree_on_kind(const allreduce::Communicator& group, StepKind mine) {
  const std::array<std::byte, 1> kind{static_cast<std::byte>(mine)};
  StepKind agreed = mine;
  for (const auto& theirs : group.all_gather(kind))
    agreed = std::min(agreed, static_cast<StepKind>(theirs.front()));
  return agreed;
}

StepRecordings::Enqueue record_step(device::Stream& stream, allreduce::GradientBuckets& buckets,
                                    const allreduce::Communicator& group,
                                    const StepRecordings::Enqueue& enqueue) try {
  device::Recorder recorder(stream);
  if (group.can_be_recorded()) {
    const RecordingScope scope(group);
    enqueue();
  } else {
    const PausingScope scope(buckets, recorder);
    enqueue();
  }
  const auto recording = std::make_shared<device::Recording>(recorder.finish());
  return [recording, &stream] { recording->launch(stream); };
} catch (const Error& error) {
  if (error.category() != ErrorCategory::device) throw;
  throw Error(ErrorCategory::device, "recording",
              "expected a step that can be recorded (--no-graph disables recording)", error.what());
}

void StepRecordings::run(std::int64_t samples, std::uint64_t placement, const Enqueue& enqueue,
                         bool plain) {
  if (placement != placement_) clear();
  placement_ = placement;
  Shape& shape = shapes_[samples];
  const StepKind mine = plain                             ? StepKind::plain
                        : shape.replay                    ? StepKind::replay
                        : shape.plain_steps < kPlainSteps ? StepKind::plain
                                                          : StepKind::record;
  const StepKind agreed = agree_(mine);
  if (agreed == StepKind::plain) {
    ++shape.plain_steps;
    return enqueue();
  }
  if (agreed == StepKind::replay) return shape.replay();
  shape.replay = record_(enqueue);
}

}  // namespace lockstep::inline v0::strategy
