#include "lockstep/strategy/record_step.h"

#include <functional>
#include <memory>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/device/recording.h"

namespace lockstep::strategy {
namespace {

/// Recorded operations do not meet the other members.
class RecordingScope {
 public:
  explicit RecordingScope(const allreduce::Communicator& group) : group_(group) { group_.set_recording(true); }
  ~RecordingScope() { group_.set_recording(false); }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  const allreduce::Communicator& group_;
};

/// The host's part of reductions comes between pieces of a recording.
class PausingScope {
 public:
  PausingScope(allreduce::GradientBuckets& buckets, device::Recorder& recorder) : buckets_(buckets) {
    buckets_.set_aside([&recorder](std::function<void()> on_host) { recorder.pause(std::move(on_host)); });
  }
  ~PausingScope() { buckets_.set_aside({}); }
  PausingScope(const PausingScope&) = delete;
  PausingScope& operator=(const PausingScope&) = delete;

 private:
  allreduce::GradientBuckets& buckets_;
};

}  // namespace

StepRecordings::Put record_step(device::Stream& stream, allreduce::GradientBuckets& buckets,
                                const allreduce::Communicator& group, const StepRecordings::Put& put) try {
  device::Recorder recorder(stream);
  if (group.can_be_recorded()) {
    const RecordingScope scope(group);
    put();
  } else {
    const PausingScope scope(buckets, recorder);
    put();
  }
  const auto recording = std::make_shared<device::Recording>(recorder.finish());
  return [recording, &stream] { recording->launch(stream); };
} catch (const Error& error) {
  if (error.category() != ErrorCategory::device) throw;
  throw Error(ErrorCategory::device, "recording", "needed a step that can be recorded; --no-graph does without",
              error.what());
}

}  // namespace lockstep::strategy
