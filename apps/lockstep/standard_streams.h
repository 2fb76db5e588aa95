// Standard input, output and error of the program: output that is lost is noticed, and never ends a command.
#pragma once

#include <chrono>
#include <memory>
#include <streambuf>

#include "lockstep/job/signals.h"

namespace lockstep::apps {

/// While it lives, `stdout`, `stderr` and std::cout are streams on which writing never fails. So nothing that prints
/// has to check, and nothing throws or dies in the middle of a training. At the first failure of standard output an
/// error line goes to standard error, what follows is dropped, and the command ends with status 3. What standard error
/// loses has nowhere to be reported. One in a process, made first thing in main.
///
/// It also opens /dev/null for each of the descriptors 0, 1 and 2 that is closed, so that no file of the program
/// becomes one of them (writing to standard output still fails then), and takes SIGPIPE
/// and SIGXFSZ, unless they are ignored already, so that writing fails and the process lives. A program that this one
/// starts has the default action again.
class StandardStreams {
 public:
  StandardStreams();
  ~StandardStreams();
  StandardStreams(const StandardStreams&) = delete;
  StandardStreams& operator=(const StandardStreams&) = delete;

  /// From now on, output that nobody reads for so long counts as lost. For trainings: other ranks wait while one
  /// prints.
  void limit_waiting(std::chrono::milliseconds limit);

  /// Writes what is buffered. Returns `status`, or 3 in place of 0 where standard output was lost.
  int finish(int status);

 private:
  class Stream;
  job::SignalStack stack_;
  std::unique_ptr<Stream> errors_;  // before output_, which reports there
  std::unique_ptr<Stream> output_;
  std::unique_ptr<std::streambuf> to_output_;  // std::cout keeps the stdout of the start
  std::streambuf* cout_before_;
};

}  // namespace lockstep::apps
