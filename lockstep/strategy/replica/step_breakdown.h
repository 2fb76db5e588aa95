// Where the time of training steps went, and what limits them.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/allreduce/member/reduction.h"

namespace lockstep::inline v0::strategy {

/// Where the time of one step, or of several, went on the first replica of a rank, in seconds. A
/// step lasts from the end of the one before it to its own end, without validations and the hooks
/// at the end of an epoch.
///
/// On a GPU, `compute`, `communication`, `waiting` and `update` are measured with events on its
/// stream, elsewhere with clocks.
struct StepBreakdown {
  double input = 0;          ///< waiting for samples
  double compute = 0;        ///< forward and backward, up to the last gradient
  double communication = 0;  ///< exposed: not overlapped with computation
  double waiting = 0;        ///< waiting for slower replicas
  double update = 0;         ///< parameter update by the optimizer
  double checkpoint = 0;     ///< saving, in the pause before this step
  double other = 0;          ///< the rest of the step: callbacks, launches, metrics

  /// The sum of all parts: the duration.
  double total() const;
  /// Adds each part.
  StepBreakdown& operator+=(const StepBreakdown& more);
  /// Each part divided, for means.
  StepBreakdown operator/(double divisor) const;
  bool operator==(const StepBreakdown&) const = default;
};

/// A part of a step.
struct StepPart {
  const char* name;               ///< as in JSON events: "input"
  double StepBreakdown::*member;  ///< its seconds
};

/// All parts of a step, in their order in messages and JSON events.
inline constexpr std::array<StepPart, 7> kStepParts = {
    {{"input", &StepBreakdown::input},
     {"compute", &StepBreakdown::compute},
     {"communication", &StepBreakdown::communication},
     {"waiting", &StepBreakdown::waiting},
     {"update", &StepBreakdown::update},
     {"checkpoint", &StepBreakdown::checkpoint},
     {"other", &StepBreakdown::other}}};

/// One line of at most `columns` characters: "step 6.1 ms = input 0.1 + compute 5.4 + update 0.6".
/// `step`: the mean step. Parts that round to zero are left out, and the smallest ones are added to
/// `other` if the line is too long.
std::string to_text(const StepBreakdown& step, std::size_t columns = 79);

/// The bottleneck of a training, and a remedy.
struct Verdict {
  /// "input", "compute", "memory", "communication", "straggler" or "checkpoint"; empty if too much
  /// of the time is in `other`.
  std::string bound_by;
  /// One line: "bound by input: 2 more data threads would hide it (--data-threads 4)".
  std::string text;

  bool operator==(const Verdict&) const = default;
};

/// Facts about a training that a verdict needs in addition to the times.
struct TrainingFacts {
  int world_size = 1;                   ///< number of replicas
  std::int64_t per_replica_batch = 1;   ///< samples per step of a replica
  std::int64_t gradient_bytes = 0;      ///< bytes that a replica sends to each reduction
  bool has_narrow_gradients = false;    ///< whether they are sent in 16 bits
  bool has_optimizer_state = true;      ///< whether the optimizer has slots
  double processors = 1;                ///< processors that rank 0 may use; may be fractional
  std::vector<std::string> names = {};  ///< names of all replicas: "rank 1"; by default "replica 1"
};

/// The sums over the steps of an interval.
struct StepSums {
  std::int64_t steps = 0;             ///< number of steps
  StepBreakdown seconds;              ///< where their time went on this rank
  int data_workers = 0;               ///< active threads that read data; 0 if none read ahead
  double data_processor_seconds = 0;  ///< processor time of these threads; 0 if unknown
  double queued_share = 0;            ///< queued_share() at the end of the interval; 0 if unknown
  /// Busy time of each replica of the job; may be empty.
  std::vector<allreduce::BusySeconds> busy = {};
};

/// Thresholds of judge().
struct VerdictLimits {
  static constexpr std::int64_t kLeastSteps = 5;  ///< fewer steps are not judged
  static constexpr double kLeastSeconds = 0.2;    ///< shorter intervals are not judged
  /// Minimum share of the time in the parts other than `other`.
  static constexpr double kCoverage = 0.7;
  /// Minimum share of input, communication, a straggler or checkpoints that limits a training.
  static constexpr double kShare = 0.1;
  /// Minimum share of memory (the update, which moves all parameters), and of waiting for replicas
  /// none of which is always the slowest.
  static constexpr double kLargeShare = 0.2;
  /// Share to which a remedy should reduce a part.
  static constexpr double kGoal = 0.1;
};

/// Returns the verdict on an interval; nullopt if it is too short (VerdictLimits). The largest part
/// that reaches its threshold limits the training; if there is none, computation does.
///
/// - input: the time that the median replica waits for samples. A single waiting replica is a
///   straggler.
/// - straggler: the time that others wait for a replica that allreduce::StragglerReport finds.
/// - communication: exposed, without waiting for other replicas.
/// - memory: the update, which computes little and reads and writes all parameters.
/// - checkpoint: the pauses in which checkpoints are saved.
std::optional<Verdict> judge(const StepSums& sums, const TrainingFacts& facts);

/// Adds the time between steps to the breakdowns of a training.
class StepClock {
 public:
  /// Begins the first step.
  void begin() { last_ = std::chrono::steady_clock::now(); }
  /// Counts `seconds` since the end of the last step as saving.
  void add_checkpoint(double seconds) { checkpoint_ += seconds; }
  /// Excludes `seconds` since the end of the last step from the next one.
  void exclude(double seconds) { excluded_ += seconds; }
  /// Ends a step, whose other parts are in `step`: sets `checkpoint` and `other`.
  void end_step(StepBreakdown& step);

 private:
  std::chrono::steady_clock::time_point last_;
  double checkpoint_ = 0;
  double excluded_ = 0;
};

}  // namespace lockstep::inline v0::strategy
