// Keeps a directory for one run where its file system has no locks.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

namespace lockstep::checkpoint {

/// How a lease shows that its holder lives.
struct LeaseTimes {
  std::chrono::milliseconds renewal{10'000};   ///< between two renewals
  std::chrono::milliseconds lifetime{60'000};  ///< without a renewal, after which another run takes the lease
};

/// DIR/.lease, which names its holder (host, boot, PID namespace, process) and whose time of modification a thread
/// renews. A lease whose holder is known to have ended, or that was not renewed for `lifetime`, is taken over. Ages are
/// differences of times that the file system gave, so the clocks of hosts need not agree.
class DirectoryLease {
 public:
  /// Waits until the lease is free. Throws Error (checkpoint) naming the holder where it is seen to live and `patience`
  /// is over, and where the directory cannot be written.
  DirectoryLease(const std::filesystem::path& directory, std::chrono::milliseconds patience,
                 const LeaseTimes& times = {});
  DirectoryLease(const DirectoryLease&) = delete;
  DirectoryLease& operator=(const DirectoryLease&) = delete;
  ~DirectoryLease();

  /// Throws Error (checkpoint) where another run has taken the lease, because this process was stopped for too long.
  void check_held() const;

 private:
  class Renewal;

  std::filesystem::path path_;
  std::string text_;
  std::unique_ptr<Renewal> renewal_;
};

}  // namespace lockstep::checkpoint
