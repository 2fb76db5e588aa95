// Every rank other than 0 in a launch: it connects to the rendezvous, runs its host's mpirun daemon
// if it is the first rank of its host, and exits with the job's exit status.
#pragma once

#include <memory>
#include <string>

#include "apps/lockstep/launch/child.h"
#include "apps/lockstep/launch/daemon.h"
#include "apps/lockstep/launch/messages.h"
#include "lockstep/net/connection.h"

namespace lockstep::inline v0::apps::launch {

class OtherTask {
 public:
  OtherTask(const LaunchOptions& options, const job::Task& task);

  /// Returns the exit status from the first task, or 128 + a signal that arrived before this task
  /// had joined. Throws Error (communication) if the first task cannot be reached or is lost.
  Ending run();

 private:
  using Clock = std::chrono::steady_clock;

  bool arrive();
  bool connect_to_first_task(const std::string& address, Clock::time_point deadline);
  void listen_for_hosts(const std::string& own_address);
  bool is_welcome(Clock::time_point deadline);
  void leave_on_signals();
  void serve();
  void handle(const net::Frame& frame);
  void dispatch(const net::Frame& frame);
  void start_daemon(const std::string& text);
  void require_own_addresses(const DaemonFacts& facts) const;
  void announce_daemon();
  bool forward(FileDescriptor& from, FrameKind kind);
  void wait_for_daemon();

  const LaunchOptions& options_;
  const job::Task& task_;
  SignalQueue signals_;
  std::optional<net::Listener> reachable_;  // for the probes of other hosts, until the job starts
  JoinRequest join_request_;
  net::Connection link_;
  std::string failure_;  // why the last attempt to connect failed
  std::unique_ptr<Child> daemon_;
  bool ranks_reported_ = false;
  std::optional<Ending> ending_;
};

}  // namespace lockstep::inline v0::apps::launch
