// Check: whether a rank trains faster with one replica on all its cores, or with one replica per
// core.
#pragma once

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::inline v0::apps::doctor {

/// Training speed of a rank in images per second, of `cnn` with 64 images of 28x28 per core.
struct ReplicaFacts {
  int cores = 1;       ///< number of cores of this rank; 1: nothing is measured
  double as_one = 0;   ///< with one replica
  double as_many = 0;  ///< with a replica per core, without the sum of their gradients

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(ReplicaFacts, cores, as_one, as_many)
};

/// Collective: all ranks at once, for `seconds` or a little longer.
Reports<ReplicaFacts> measure_replicas(Ranks& ranks, double seconds);

/// `replicas`: recommends a value of `--devices`. Adds no finding, because networks differ.
Outcome judge_replicas(const Reports<ReplicaFacts>& reports);

}  // namespace lockstep::inline v0::apps::doctor
