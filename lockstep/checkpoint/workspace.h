// The hidden files of a checkpoint directory: the lock of the run that writes there, temporary
// directories, and leftovers of crashed runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/system/file_descriptor.h"
#include "lockstep/checkpoint/lease.h"

namespace lockstep::inline v0::checkpoint {

/// Exclusive use of a directory by one run: a lock on DIR/.lock, which the system releases when the
/// process ends, even by a signal; or a lease if the file system has no locks.
class DirectoryLock {
 public:
  /// Waits up to `patience` for another run to release the lock, and calls `report` repeatedly
  /// meanwhile. Throws Error (checkpoint) naming the process that holds it, or if DIR/.lock is not
  /// a regular file with one hard link; such a file is not modified.
  DirectoryLock(const std::filesystem::path& directory, std::chrono::milliseconds patience,
                const WaitReport& report = {}, const LeaseTimes& times = {});

  /// Why a lease is used instead of a lock; empty if there is a lock.
  const std::string& why_lease() const { return why_lease_; }
  /// Whether a lease is used instead of a lock.
  bool is_lease() const { return lease_.has_value(); }
  /// Whether the file of the lock or lease was removed, for example with its directory.
  bool is_removed() const;
  /// Throws Error (checkpoint) if another run has taken over the lease, or has locked a new file
  /// because this one was removed. A lock cannot be lost in another way.
  void check_held() const;

 private:
  std::filesystem::path path_;  // the file DIR/.lock
  FileDescriptor file_;
  std::string why_lease_;
  std::optional<DirectoryLease> lease_;
};

/// Prefix of the chief's temporary directory, which is renamed when complete:
/// ".step-00001000.tmp-HOST-BOOT-NAMESPACE-PROCESS-".
std::string chief_temporary_prefix(std::int64_t step);
/// Prefix of a checkpoint that is being removed.
std::string removal_prefix(std::int64_t step);
/// Prefix of another rank's temporary directory, which is removed:
/// ".workertemp_RANK-HOST-…-PROCESS-".
std::string worker_temporary_prefix(int rank);

/// Which hidden directories count as leftovers.
enum class Leftovers {
  all,        ///< all of them: for a run with a lock
  abandoned,  ///< for a run with a lease: not those of running processes, nor of unknown processes
              ///< if modified within the lease lifetime
};

/// Renames complete checkpoints that a crash left under hidden names in `directory` to their final
/// names, unless these exist. If a step has several, uses the newest whose checksums are correct.
/// Returns their paths. Throws Error (checkpoint).
std::vector<std::filesystem::path> recover_checkpoints(const std::filesystem::path& directory,
                                                       Leftovers which);

/// Removes temporary directories in `directory`; ignores errors. Must not be called while a rank is
/// saving.
void remove_leftovers(const std::filesystem::path& directory, Leftovers which);

/// Removes abandoned temporary directories of ranks in `directory`: those of ended processes of
/// this boot and PID namespace, and those of other hosts, boots or namespaces that were not
/// modified for a day.
void remove_worker_leftovers(const std::filesystem::path& directory);

/// A directory for temporary files on local storage of this node: TMPDIR, otherwise /tmp. Empty if
/// both are on shared storage or not writable.
std::filesystem::path node_directory();

}  // namespace lockstep::inline v0::checkpoint
