// Finds replicas that slow the others, from busy times without waiting for others.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/allreduce/member/reduction.h"

namespace lockstep::inline v0::allreduce {

/// A replica that other replicas wait for.
struct Straggler {
  std::size_t replica = 0;  ///< index in the job
  const char* phase = "";   ///< "input" or "compute": the phase with the larger delay
  double seconds = 0;       ///< time of this replica in that phase, per step
  double median = 0;        ///< median time of the other replicas
  double wait = 0;          ///< median waiting time of the others for this one, per step
};

/// Sums steps and reports at the end of a log interval which replicas were slow over all of it.
/// Occasional delays do not count.
class StragglerReport {
 public:
  explicit StragglerReport(std::size_t replicas);  ///< for a job of `replicas` replicas

  /// Adds `steps` steps. `busy` has the sums over these steps, one entry per replica.
  void add(std::span<const BusySeconds> busy, std::size_t steps = 1);
  std::size_t steps() const { return steps_; }  ///< steps added since the last report

  /// The stragglers, slowest first. Each replica is compared with the median of the others, so one
  /// of two can be a straggler, and so can two on one host. A replica is a straggler in a phase
  /// that takes more than 1.2 times the median (equal machines differ by about 10 %) and more than
  /// 1 ms longer per step (below that it is scheduling noise), if also its steps take more
  /// than 1.05 times the median of the others and 1 ms longer. Otherwise it regains the loss in the
  /// other phase, and no replica waits.
  std::vector<Straggler> stragglers() const;

  /// Starts the next interval.
  void restart();

 private:
  std::vector<BusySeconds> sums_;
  std::size_t steps_ = 0;
};

/// One sentence per straggler: "rank 1 (host H) is slow: compute takes 212 ms per step, the median
/// is 12 ms; the others wait 200 ms per step for it". names[i] is the name of replica i.
std::vector<std::string> to_sentences(std::span<const Straggler> stragglers,
                                      std::span<const std::string> names);

}  // namespace lockstep::inline v0::allreduce
