// Rank 0's part in a launch: it lets the other tasks come, starts mpirun over their hosts, and sends all home.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/lockstep/launch/child.h"
#include "apps/lockstep/launch/job_plan.h"
#include "apps/lockstep/launch/meeting.h"
#include "apps/lockstep/launch/options.h"
#include "apps/lockstep/launch/reach.h"
#include "lockstep/base/error.h"

namespace lockstep::apps::launch {

class FirstTask {
 public:
  /// Throws Error (communication) where the port of the meeting is taken, (input) where tasks on other hosts may come
  /// and there is no secret.
  FirstTask(const LaunchOptions& options, const job::Task& task);

  /// Returns the exit status of mpirun, or 128 + a signal that came before mpirun was there. Throws Error (input) for
  /// tasks that contradict each other, (communication) where one does not come, is lost, or cannot reach another.
  int run();

 private:
  using Clock = Meeting::Clock;

  void gather();
  void admit(Visitor& visitor, const Frame& frame);
  void admit(Visitor& visitor, Arrival task);
  void probe();
  std::vector<Target> targets_of(std::size_t host) const;
  int run_mpirun();
  Error unstarted() const;
  void wait_for_daemons(Child& mpirun);
  void serve(const Event& event, Child& mpirun);
  void answer_call(Visitor& agent, const std::string& text);
  void pass_to_agent(const Visitor& visitor, const Frame& frame);
  void take_signal(int signal, int rank, Child& mpirun);
  void stop_on_signals();
  void dismiss(const Ending& ending, FrameKind kind);
  Visitor& visitor_of(int rank);
  std::string missing_ranks() const;

  const LaunchOptions& options_;
  const job::Task& task_;
  SignalQueue signals_;
  std::vector<std::string> addresses_;  // where tasks come to this one
  Meeting meeting_;
  std::map<int, Arrival> tasks_;  // by rank
  JobPlan plan_;
  net::JobSecret token_ = net::JobSecret::draw();  // that agents of our mpirun know
  int stops_ = 0;                                  // wishes that the job ends
  std::set<int> wished_;                           // the ranks whose tasks were sent such a signal
  Clock::time_point last_stop_{};
  std::set<int> running_daemons_;  // by the first rank of their hosts
  bool started_ = false;           // whether ranks have been seen
  std::optional<Error> failure_;   // why the job is ended before its time
};

}  // namespace lockstep::apps::launch
