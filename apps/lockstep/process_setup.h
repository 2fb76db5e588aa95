// Process setup in main() (signals and standard streams), and output on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <streambuf>
#include <string>
#include <string_view>

#include "lockstep/job/signal/signals.h"

namespace lockstep::inline v0::apps {

/// Restores the SIGHUP action that this process inherited, such as SIG_IGN under nohup. Libraries
/// install a handler before main() runs (UCX, which Debian 13's Open MPI loads, for its debugger).
/// Must be called first in main(). SIGUSR1 is already held before main()
/// (job::hold_recording_requests()).
void restore_inherited_hangup();

/// Prints "VERB: 3000 of 60000 records" on standard error and updates it in place, if that is a
/// terminal.
class DataProgress {
 public:
  /// `total`: 0 if unknown.
  DataProgress(std::string_view verb, std::int64_t total);
  DataProgress(const DataProgress&) = delete;
  DataProgress& operator=(const DataProgress&) = delete;
  /// Clears the line.
  ~DataProgress();

  void show(std::int64_t records);

 private:
  std::string verb_;
  std::int64_t total_;
  bool on_terminal_;
};

/// Prints `text` on standard output: unchanged to a file or another program; on a terminal through
/// printable(), with line breaks and tabs. StandardStreams reports failures.
void print_exactly(std::string_view text);

// Standard input, output and error of the program. Lost output is reported at the end and never
// aborts a command.

/// While an object exists, writing to `stdout`, `stderr` and std::cout never fails, so that callers
/// need no checks and a training is not aborted by a lost output. The first failure of standard
/// output prints an error line on standard error; later output is dropped, and the command ends
/// with status 3. Lost standard error is not reported. There is one object per process, created
/// first in main.
///
/// The constructor also opens /dev/null for each of the descriptors 0, 1 and 2 that is closed, so
/// that no other file gets these numbers (writing to standard output still fails in that case). It
/// handles SIGPIPE and SIGXFSZ, unless they are ignored already, so that writing fails instead of
/// ending the process. Child programs have the default action.
class StandardStreams {
 public:
  StandardStreams();
  ~StandardStreams();
  StandardStreams(const StandardStreams&) = delete;
  StandardStreams& operator=(const StandardStreams&) = delete;

  /// Treats output as lost if it is not read for `limit`. Used for training, where other ranks wait
  /// while one prints.
  void limit_waiting(std::chrono::milliseconds limit);

  /// Flushes. Returns `status`, or 3 instead of 0 if standard output was lost.
  int finish(int status);

 private:
  class Stream;
  job::SignalStack stack_;
  Stream* errors_;  // both live until the process ends
  Stream* output_;
  std::unique_ptr<std::streambuf>
      to_output_;  // redirects std::cout, which otherwise keeps the original stdout
  std::streambuf* cout_before_;
};

}  // namespace lockstep::inline v0::apps
