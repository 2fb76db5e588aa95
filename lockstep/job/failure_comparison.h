// How a failed job ends: with one error line, printed by one rank if all have the same error, and
// the same exit status on all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/allreduce/algorithm/ring_reduction.h"
#include "lockstep/allreduce/transport/message_buffers.h"
#include "lockstep/allreduce/transport/transport.h"
#include "lockstep/job/failure.h"

namespace lockstep::inline v0::job {

/// The decision of a rank after comparing its failure with those of the others.
struct FailureVerdict {
  bool everyone_failed = false;  ///< all ranks are ending; none has to be aborted
  bool all_alike = false;        ///< all ranks have the same failure
  bool print = true;             ///< whether this rank prints its line
  int exit_status = 1;           ///< the job's
};

/// The comparison of one rank's failure with those of the others: a state machine without a clock.
/// It waits for the other members to fail as well. The lowest of the ranks with equal messages
/// prints; consequences are printed only if no rank has a cause.
class FailureComparison {
 public:
  /// `ranks`, which nothing else uses, outlives this object. `limit`: seconds after which ranks
  /// that have not failed count as running.
  FailureComparison(const Failure& mine, allreduce::Transport& ranks, double limit);

  /// Makes progress without waiting, with the turn of `ranks`; returns the verdict once it is
  /// certain. `now`: seconds since the start.
  std::optional<FailureVerdict> advance(double now);

 private:
  /// What ranks exchange, to distinguish equal failures from different ones.
  struct Summary {
    std::uint64_t message_hash = 0;
    std::int32_t exit_status = 0;
    std::int32_t consequence = 0;
  };

  FailureVerdict judge() const;

  std::size_t rank_;
  double limit_;
  std::vector<Summary> all_;  // by rank
  allreduce::MessageBuffers buffers_;
  std::optional<allreduce::RingReduction> exchange_;  // none once a rank is lost
};

/// Compares `mine` with the failures of the other members of `ranks`, for up to `seconds`. Called
/// with the turn of `ranks`. The limit is longer if processors are busy with other work.
FailureVerdict compare_failures(const Failure& mine, allreduce::Transport& ranks, double seconds);

}  // namespace lockstep::inline v0::job
