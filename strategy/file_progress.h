// Shows the watchdog that long work on files goes on.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "allreduce/activity.h"

namespace lockstep::strategy {

/// Functions that read, write or hash report after this many bytes.
inline constexpr std::size_t kFileProgressBytes = std::size_t{1} << 20;

/// How long one operation on a file (a read, a write, an fsync, a rename) may take and still count as progress. A file
/// server that restarts answers within this time; one that never answers is found by the watchdog after it.
inline constexpr std::chrono::minutes kFilePatience{10};

/// While it lives, work on files on the thread that made it is progress of `activity`: a helper thread ticks it, as
/// long as the last call of note_file_progress() is at most `patience` ago. So a slow disk is never a stall, and a hung
/// one is. A process that was stopped or killed does not tick. For work that waits for no other rank.
class FileProgress {
 public:
  /// Null watches nothing. Objects on one thread end in the reverse order of their construction.
  explicit FileProgress(allreduce::Activity* activity, std::chrono::milliseconds patience = kFilePatience);
  FileProgress(const FileProgress&) = delete;
  FileProgress& operator=(const FileProgress&) = delete;
  ~FileProgress();

 private:
  friend void note_file_progress();
  class Ticker;
  std::unique_ptr<Ticker> ticker_;
  FileProgress* outer_ = nullptr;
};

/// Says that an operation on a file is complete. Does nothing where no FileProgress lives on this thread.
void note_file_progress();

}  // namespace lockstep::strategy
