// How a job ends that cannot go on: one line, from one rank where all saw the same, and the same exit status
// everywhere.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <exception>
#include <string>

namespace lockstep::job {

/// What made a rank leave.
struct Failure {
  std::string message;       ///< "[where] need; given"
  int exit_status = 1;       ///< of the program (lockstep/base/error.h)
  bool consequence = false;  ///< a failed collective: probably what another rank's failure looks like from here
};

/// Reads the exception under way; to be called from a catch block.
Failure describe_current_exception();

/// What a rank does after it compared its failure with those of the others.
struct FailureVerdict {
  bool everyone_failed = false;  ///< all ranks are leaving; none has to be ended by force
  bool print = true;             ///< whether this rank prints its line
  int exit_status = 1;           ///< the job's
};

/// Waits up to `seconds` for the other ranks of `ranks` to fail as well, and compares. Ranks that are still at work do
/// not take part, which is what the time limit is for. Of equal messages the lowest rank prints; consequences are
/// printed only where nobody has a cause.
FailureVerdict compare_failures(const Failure& mine, MPI_Comm ranks, double seconds);

}  // namespace lockstep::job
