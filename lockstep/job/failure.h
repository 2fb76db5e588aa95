// How a failed job ends: with one error line, printed by one rank if all have the same error, and
// the same exit status on all ranks.
#pragma once

#include <string>

namespace lockstep::inline v0::allreduce {
class Transport;
}  // namespace lockstep::inline v0::allreduce

namespace lockstep::inline v0::job {

/// Why a rank ends.
struct Failure {
  std::string message;       ///< "[where] expected …, got …"
  int exit_status = 1;       ///< the exit status (lockstep/base/error.h)
  bool consequence = false;  ///< a failed collective: probably caused by another rank's failure
};

/// Describes the current exception. Call it from a catch block.
Failure describe_current_exception();

/// The decision of a rank after comparing its failure with those of the others.
struct FailureVerdict {
  bool everyone_failed = false;  ///< all ranks are ending; none has to be aborted
  bool all_alike = false;        ///< all ranks have the same failure
  bool print = true;             ///< whether this rank prints its line
  int exit_status = 1;           ///< the job's
};

/// Waits up to `seconds` for the other members of `ranks`, which nothing else uses, to fail as
/// well, and compares the failures. Called with the turn of `ranks`. The time limit covers ranks
/// that are still running, and is longer if processors are busy with other work. The lowest of the
/// ranks with equal messages prints; consequences are printed only if no rank has a cause.
FailureVerdict compare_failures(const Failure& mine, allreduce::Transport& ranks, double seconds);

}  // namespace lockstep::inline v0::job
