// Recording of a training step, including its reductions, for replay on a GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "lockstep/allreduce/buckets/gradient_buckets.h"
#include "lockstep/allreduce/communicator.h"
#include "lockstep/device/stream.h"

namespace lockstep::inline v0::strategy {

/// How a step is executed. If replicas need different kinds, all use the smallest.
enum class StepKind : std::uint8_t { plain, record, replay };

/// Returns the kind of step that all members of `group` execute if this one needs `mine`: a
/// recorded sum matches only recorded sums of the other replicas. Collective.
StepKind agree_on_kind(const allreduce::Communicator& group, StepKind mine);

/// Recordings of steps, one per number of samples: the smaller last batch of an epoch has its own.
/// The first steps of each number are enqueued without recording, because they create plans and
/// choose algorithms, which cannot be recorded.
class StepRecordings {
 public:
  /// Enqueues work on the stream.
  using Enqueue = std::function<void()>;
  /// Executes and records the work of `enqueue`; the result replays it.
  using Record = std::function<Enqueue(const Enqueue& enqueue)>;
  /// Returns the kind of step that all replicas execute if this one needs `mine`; collective.
  using Agree = std::function<StepKind(StepKind mine)>;

  static constexpr int kPlainSteps = 2;  ///< steps before one is recorded

  /// `record` records a step; `agree` makes all replicas execute the same kind.
  StepRecordings(Record record, Agree agree)
      : record_(std::move(record)), agree_(std::move(agree)) {}

  /// Executes one step of `samples` samples, which `enqueue` enqueues. `placement` changes when the
  /// memory that a step uses has moved, which makes earlier recordings invalid. With `plain`, the
  /// step is enqueued without recording.
  void run(std::int64_t samples, std::uint64_t placement, const Enqueue& enqueue,
           bool plain = false);

  /// Discards all recordings.
  void clear() { shapes_.clear(); }

 private:
  struct Shape {
    int plain_steps = 0;
    Enqueue replay;
  };

  Record record_;
  Agree agree_;
  std::uint64_t placement_ = 0;
  std::map<std::int64_t, Shape> shapes_;
};

/// Records the work that `enqueue` enqueues on `stream`, and executes it; the result replays it.
/// The reductions of `buckets` over `group` are part of the recording if they run on GPUs only
/// (Communicator::can_be_recorded); otherwise the recording is split around them. All arguments
/// except `enqueue` must outlive the result. Collective. Throws Error (device) for work that cannot
/// be recorded.
StepRecordings::Enqueue record_step(device::Stream& stream, allreduce::GradientBuckets& buckets,
                                    const allreduce::Communicator& group,
                                    const StepRecordings::Enqueue& enqueue);

}  // namespace lockstep::inline v0::strategy
