// Which replica slows the others, and with what: from the time each was busy, the waiting for others left out.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace lockstep::allreduce {

/// What one replica was busy with in a step, in seconds. Waiting inside a collective is in neither: a reduction makes
/// all replicas take as long as the slowest, and with it in the sum the slow one would look like those that wait for
/// it.
struct BusySeconds {
  double input = 0;    ///< waiting for its own data
  double compute = 0;  ///< forward, backward up to the last gradient, update
};

/// A replica that the others wait for.
struct Straggler {
  std::size_t replica = 0;  ///< its number in the job
  const char* phase = "";   ///< "input" or "compute", where it loses most
  double seconds = 0;       ///< it spends in that phase, a step
  double median = 0;        ///< of the other replicas
  double wait = 0;          ///< of a middling other replica for this one, a step
};

/// Adds steps up, and tells at the end of a log interval who stood out over all of it: a replica that is late now and
/// then, as each is, does not.
class StragglerReport {
 public:
  explicit StragglerReport(std::size_t replicas);  ///< for a job of `replicas` replicas

  /// One entry a replica: the sums over `steps` steps.
  void add(std::span<const BusySeconds> busy, std::size_t steps = 1);
  std::size_t steps() const { return steps_; }  ///< steps added since the last report

  /// Who stands out, the slowest first. Each is compared with the median of the others, so that one of two can be
  /// named, and so can two on one host. A replica stands out in a phase with more than 1.2 times the median (replicas
  /// on equal machines differ by a tenth for no reason that anyone could mend) and more than 1 ms a step (below that it
  /// is the scheduler), if its steps take more than 1.05 times the median of the others and 1 ms more: otherwise what
  /// it loses in one phase it wins in the other, and nobody waits.
  std::vector<Straggler> stragglers() const;

  /// Begins the next interval.
  void restart();

 private:
  std::vector<BusySeconds> sums_;
  std::size_t steps_ = 0;
};

/// "rank 1 (host H) is slow: compute 212 ms a step where the median is 12 ms; the others wait 200 ms a step for it", a
/// sentence each; empty where there is none. `name`: what replica i is called.
std::vector<std::string> to_sentences(std::span<const Straggler> stragglers, std::span<const std::string> names);

}  // namespace lockstep::allreduce
