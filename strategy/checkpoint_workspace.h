// The hidden names inside a checkpoint directory: the lock of the run that writes there, and what is under way or left
// over.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep::strategy {

/// Keeps a directory for one run: a lock on DIR/.lock that the system takes back when the process ends, however it
/// ends. Where the file system knows no locks there is none.
class DirectoryLock {
 public:
  /// Waits up to `patience` for another run to leave. Throws Error (checkpoint) naming the process that stays.
  DirectoryLock(const std::filesystem::path& directory, std::chrono::milliseconds patience);
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  ~DirectoryLock();

 private:
  int descriptor_ = -1;
};

/// ".step-00001000.tmp-HOST-PID": the chief's, to be renamed when complete.
std::string chief_temporary_name(std::int64_t step);
/// ".workertemp_RANK-HOST-PID": another rank's, to be removed.
std::string worker_temporary_name(int rank);

/// Removes every temporary directory in `directory`, whoever left it. For the holder of the lock, while no rank is
/// saving.
void remove_leftovers(const std::filesystem::path& directory);

/// Removes the temporary directories in `directory` that workers on this host left whose process is no more.
void remove_leftovers_of_the_dead(const std::filesystem::path& directory);

}  // namespace lockstep::strategy
