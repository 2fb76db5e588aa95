// Terminal detection.
#pragma once

#include <chrono>
#include <memory>
#include <streambuf>

#include "lockstep/job/signals.h"

namespace lockstep::apps {

/// Whether `descriptor` is connected to a terminal, so that a line can be overwritten. mpirun gives its ranks a
/// pseudo-terminal in any case; under mpirun, the launcher's output decides.
bool is_watched(int descriptor);

// Standard input, output and error of the program. Lost output is reported at the end and never aborts a command.

/// While an object exists, writing to `stdout`, `stderr` and std::cout never fails, so that callers need no checks and
/// a training is not aborted by a lost output. The first failure of standard output prints an error line on standard
/// error; later output is dropped, and the command ends with status 3. Lost standard error is not reported. There is
/// one object per process, created first in main.
///
/// The constructor also opens /dev/null for each of the descriptors 0, 1 and 2 that is closed, so that no other file
/// gets these numbers (writing to standard output still fails in that case). It handles SIGPIPE and SIGXFSZ, unless
/// they are ignored already, so that writing fails instead of ending the process. Child programs have the default
/// action.
class StandardStreams {
 public:
  StandardStreams();
  ~StandardStreams();
  StandardStreams(const StandardStreams&) = delete;
  StandardStreams& operator=(const StandardStreams&) = delete;

  /// Treats output as lost if it is not read for `limit`. Used for training, where other ranks wait while one prints.
  void limit_waiting(std::chrono::milliseconds limit);

  /// Flushes. Returns `status`, or 3 instead of 0 if standard output was lost.
  int finish(int status);

 private:
  class Stream;
  job::SignalStack stack_;
  std::unique_ptr<Stream> errors_;  // declared before output_, which reports to it
  std::unique_ptr<Stream> output_;
  std::unique_ptr<std::streambuf> to_output_;  // redirects std::cout, which otherwise keeps the original stdout
  std::streambuf* cout_before_;
};

}  // namespace lockstep::apps
