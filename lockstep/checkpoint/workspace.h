// The hidden names inside a checkpoint directory: the lock of the run that writes there, and what is being written or
// was left over.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/lease.h"

namespace lockstep::checkpoint {

/// Keeps a directory for one run: a lock on DIR/.lock that the system takes back when the process ends, however it
/// ends; or a lease, where the file system has no locks.
class DirectoryLock {
 public:
  /// Waits up to `patience` for another run to leave. Throws Error (checkpoint) naming the process that stays, and
  /// where DIR/.lock is not a regular file with one link: nothing else is written to.
  DirectoryLock(const std::filesystem::path& directory, std::chrono::milliseconds patience,
                const LeaseTimes& times = {});
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  ~DirectoryLock();

  /// Why there is a lease and no lock; empty where there is a lock.
  const std::string& why_lease() const { return why_lease_; }
  /// Whether a lease takes the place of the lock.
  bool is_lease() const { return lease_.has_value(); }
  /// Throws Error (checkpoint) where another run has taken the directory. A lock cannot be lost.
  void check_held() const;

 private:
  int descriptor_ = -1;
  std::string why_lease_;
  std::optional<DirectoryLease> lease_;
};

/// Begins the name of the chief's temporary directory, to be renamed when complete:
/// ".step-00001000.tmp-HOST-BOOT-NAMESPACE-PROCESS-".
std::string chief_temporary_prefix(std::int64_t step);
/// Begins the name of a checkpoint that is being removed.
std::string removal_prefix(std::int64_t step);
/// Begins the name of another rank's temporary directory, to be removed: ".workertemp_RANK-HOST-…-PROCESS-".
std::string worker_temporary_prefix(int rank);

/// Whose hidden directories the holder of the lock takes for left over.
enum class Leftovers {
  all,        ///< under a lock: nobody else writes there
  abandoned,  ///< under a lease: not those whose process lives, or may live and wrote within the life of a lease
};

/// Gives complete checkpoints that a crash left under a hidden name in `directory` their own names, where no directory
/// has it: of several of one step the newest whose checksums hold. Returns their paths. Throws Error (checkpoint).
std::vector<std::filesystem::path> recover_checkpoints(const std::filesystem::path& directory, Leftovers which);

/// Removes temporary directories in `directory`; what cannot be removed stays. While no rank is saving.
void remove_leftovers(const std::filesystem::path& directory, Leftovers which);

/// Removes the temporary directories in `directory` that workers left: those whose process, of this host, boot and PID
/// namespace, is no more, and those of others that nobody has touched for a day.
void remove_leftovers_of_the_dead(const std::filesystem::path& directory);

/// Where this node has room for temporary directories that no other node shares: TMPDIR, or else /tmp. Empty where
/// both are shared storage or cannot be written.
std::filesystem::path node_directory();

}  // namespace lockstep::checkpoint
