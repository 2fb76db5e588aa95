// Exclusive use of a directory on a file system without locks.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace lockstep::inline v0::checkpoint {

/// Timing of lease renewals.
struct LeaseTimes {
  std::chrono::milliseconds renewal{10'000};  ///< interval between renewals
  std::chrono::milliseconds lifetime{
      60'000};  ///< time without renewal after which another run may take over the lease
};

/// Called with the holder of a directory, "process 7 on host", at each unsuccessful attempt to
/// acquire it.
using WaitReport = std::function<void(const std::string& holder)>;

/// The file DIR/.lease names its holder (boot, PID namespace, process and its start, host). A
/// thread of the holder renews its modification time. A lease whose holder is known to have ended,
/// or that was not renewed for `lifetime`, is taken over. Ages are differences of file system
/// timestamps, so the clocks of hosts need not be synchronized.
class DirectoryLease {
 public:
  /// Waits until the lease is free, and calls `report` meanwhile. Throws Error (checkpoint) naming
  /// the holder if it is still alive after `patience`, or if the directory is not writable.
  DirectoryLease(const std::filesystem::path& directory, std::chrono::milliseconds patience,
                 const LeaseTimes& times = {}, const WaitReport& report = {});
  DirectoryLease(const DirectoryLease&) = delete;
  DirectoryLease& operator=(const DirectoryLease&) = delete;
  ~DirectoryLease();

  /// Throws Error (checkpoint) if another run has taken over the lease, because this process was
  /// suspended for too long.
  void check_held() const;

 private:
  class Renewal;

  std::filesystem::path path_;
  std::string text_;
  std::unique_ptr<Renewal> renewal_;
};

}  // namespace lockstep::inline v0::checkpoint
