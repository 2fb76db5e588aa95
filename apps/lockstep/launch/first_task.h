// Rank 0 in a launch: it accepts the connections of the other tasks, runs mpirun over their hosts,
// and sends them the exit status.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/lockstep/launch/child.h"
#include "apps/lockstep/launch/job_plan.h"
#include "apps/lockstep/launch/rendezvous.h"
#include "lockstep/allreduce/watchdog/progress.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::apps::launch {

class FirstTask {
 public:
  /// Throws Error (communication) if the port of the rendezvous is in use, (input) if tasks may be
  /// on other hosts and there is no secret.
  FirstTask(const LaunchOptions& options, const job::Task& task);

  /// Returns the exit status of mpirun, or 128 + a signal that arrived before mpirun ran. Throws
  /// Error (input) if tasks are inconsistent, (communication) if one does not connect, is lost, or
  /// cannot reach another.
  int run();

 private:
  using Clock = Rendezvous::Clock;

  void gather();
  void admit(Client& client, const net::Frame& frame);
  void admit(Client& client, JoinRequest task);
  void probe();
  std::vector<Target> targets_of(std::size_t host) const;
  int run_mpirun();
  Error unstarted() const;
  void check_mpirun(const Child& mpirun);
  void wait_for_daemons(Child& mpirun);
  void serve(const Event& event, Child& mpirun);
  void answer_call(Client& agent, const std::string& text);
  void forward_to_agent(const Client& client, const net::Frame& frame);
  void handle_signal(int signal, int rank, Child& mpirun);
  void stop_on_signals();
  void shut_down_tasks(const Ending& ending, FrameKind kind);
  Client& client_of(int rank);
  std::string missing_ranks() const;

  const LaunchOptions& options_;
  const job::Task& task_;
  SignalQueue signals_;
  std::vector<std::string> addresses_;  // addresses that the tasks connect to
  Rendezvous rendezvous_;
  std::map<int, JoinRequest> tasks_;  // by rank
  JobPlan plan_;
  net::JobSecret token_ = net::JobSecret::draw();  // shared with the agents of this mpirun
  int stops_ = 0;                                  // requests to end the job
  std::set<int> requested_;                        // ranks whose tasks received a stop signal
  Clock::time_point last_stop_{};
  std::set<int> running_daemons_;  // by the first rank of their hosts
  bool started_ = false;           // whether ranks have been seen
  std::optional<Error> failure_;   // why the job is ended early
  allreduce::AwakeClock awake_;
  double ran_at_ = 0;        // time of `awake_` at which mpirun was last seen running
  bool has_warned_ = false;  // whether the warning of a stopped mpirun was logged
};

}  // namespace lockstep::inline v0::apps::launch
