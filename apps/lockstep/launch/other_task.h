// The part of every rank but 0 in a launch: it comes to the meeting, keeps its host's daemon of mpirun if it is the
// first of its host, and leaves with the job's exit status.
#pragma once

#include <memory>
#include <string>

#include "apps/lockstep/launch/child.h"
#include "apps/lockstep/launch/daemon.h"
#include "apps/lockstep/launch/link.h"
#include "apps/lockstep/launch/options.h"
#include "apps/lockstep/launch/reach.h"

namespace lockstep::apps::launch {

class OtherTask {
 public:
  OtherTask(const LaunchOptions& options, const job::Task& task);

  /// Returns how it is told to leave, or 128 + a signal that came before it had arrived. Throws Error (communication)
  /// where the first task cannot be reached or is lost.
  Ending run();

 private:
  using Clock = std::chrono::steady_clock;

  bool arrive();
  bool come_to(const std::string& address, Clock::time_point deadline);
  void listen_for_hosts(const std::string& own_address);
  bool is_welcome(Clock::time_point deadline);
  void leave_on_signals();
  void stay();
  void take(const Frame& frame);
  void act_on(const Frame& frame);
  void start_daemon(const std::string& text);
  void require_own_addresses(const DaemonFacts& facts) const;
  void tell_of_daemon();
  bool pass_on(net::FileDescriptor& from, FrameKind kind);
  void let_daemon_end();

  const LaunchOptions& options_;
  const job::Task& task_;
  SignalQueue signals_;
  std::optional<net::Listener> reachable_;  // for other hosts to try, until the job starts
  Arrival arrival_;
  Link link_;
  std::string failure_;  // why the last attempt to come failed
  std::unique_ptr<Child> daemon_;
  bool told_of_ranks_ = false;
  std::optional<Ending> ending_;
};

}  // namespace lockstep::apps::launch
