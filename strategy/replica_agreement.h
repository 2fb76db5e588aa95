// Whether all replicas still hold the same numbers, and which one of which replica does not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strategy/replica.h"

namespace lockstep::strategy {

/// A tensor in which a replica differs from most others.
struct Disagreement {
  std::string tensor;    ///< "conv1/kernel", or "momentum of conv1/kernel"
  std::vector<int> odd;  ///< replicas that differ from the most frequent value; with two replicas, the second
};

/// Compares 64-bit hashes of every parameter and every optimizer slot over the group of `replica`, and returns the
/// first tensor, in the order of the parameters, that is not the same everywhere; nothing if all are. The same answer
/// on all replicas. One small message where all is well. Collective.
std::optional<Disagreement> find_disagreement(Replica& replica);

}  // namespace lockstep::strategy
