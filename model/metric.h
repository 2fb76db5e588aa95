// Sums that give exact metrics for any number of replicas: integers are added, and divided once at the end.
#pragma once

#include <cstdint>

namespace lockstep::model {

/// Sums over samples. Add those of all parts and replicas, then ask for the means.
struct MetricSums {
  double loss = 0;  ///< sum of per-sample losses
  std::int64_t samples = 0;
  std::int64_t correct = 0;       ///< samples whose label has the largest output (the first of equals)
  std::int64_t correct_top5 = 0;  ///< samples whose label is among the five largest outputs
  bool has_accuracy = false;      ///< whether the loss knows classes; false for mean squared error

  MetricSums& operator+=(const MetricSums& other);

  double mean_loss() const { return samples ? loss / static_cast<double>(samples) : 0; }
  double accuracy() const { return samples ? static_cast<double>(correct) / static_cast<double>(samples) : 0; }
  double top5_accuracy() const {
    return samples ? static_cast<double>(correct_top5) / static_cast<double>(samples) : 0;
  }
};

}  // namespace lockstep::model
