// The numbers of one step that travel between replicas with the last gradient bucket.
#pragma once

#include <csignal>
#include <span>

#include "lockstep/model/metric.h"

namespace lockstep::strategy {

/// What one replica adds to a step, and, summed over all replicas, what the step came to.
struct StepReport {
  model::MetricSums metrics = {};  ///< of a step without a failure; has_accuracy is not carried
  std::int64_t non_finite = 0;     ///< replicas whose loss was not finite; their metrics count 0 samples
  bool is_finite = true;           ///< whether the sum of all losses is finite; false where any loss is not
  std::int64_t terminate = 0;      ///< ranks that were told to leave by SIGTERM
  std::int64_t interrupt = 0;      ///< by SIGINT
  std::int64_t hangup = 0;         ///< by SIGHUP

  /// The signal that the job leaves on; 0 for none. Of several the largest number, as where ranks agree by a maximum.
  int signal() const { return terminate ? SIGTERM : interrupt ? SIGINT : hangup ? SIGHUP : 0; }
  /// Counts this rank's own `signal`; 0 for none.
  void add_signal(int signal);

  /// Passengers begin with model::SummableMetrics, which the model writes; the signals come behind them.
  void write_signals(std::span<float> passengers) const;
  static StepReport read(std::span<const float> passengers);  ///< as it lies among the passengers after the sum
};

}  // namespace lockstep::strategy
