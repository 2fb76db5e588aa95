// Check: whether the cores of a rank train faster as one replica with a thread for each of them, or
// as replicas of one core.
#pragma once

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::apps::doctor {

/// Images per second that the cores of a rank train, `cnn` with 64 images of 28x28 for each core.
struct ReplicaFacts {
  int cores = 1;       ///< of this rank; 1: nothing is measured
  double as_one = 0;   ///< one replica
  double as_many = 0;  ///< a replica for each core, without the sum of their gradients

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(ReplicaFacts, cores, as_one, as_many)
};

/// Collective: all ranks at once, for `seconds` or a little longer.
Reports<ReplicaFacts> measure_replicas(Ranks& ranks, double seconds);

/// `replicas`: what to choose for `--devices`. No finding: a network may differ.
Outcome judge_replicas(const Reports<ReplicaFacts>& reports);

}  // namespace lockstep::apps::doctor
