// How many cores are a rank's own.
#pragma once

#include <string>
#include <vector>

#include "strategy/session.h"

namespace lockstep::strategy {

/// What a rank tells the others.
struct CoreClaim {
  int node = 0;                 ///< number of its host
  std::string processors = {};  ///< one character a processor, '1' where the rank may run
  double quota = 0;             ///< processors' worth of time that its control group is granted; 0: no limit
};

/// The cores of rank `rank`: its processors, divided by the ranks of the same node that were given exactly the same
/// ones (as with `--bind-to none`); fewer where the ranks of the node, of which those with the same quota share it, get
/// less time than that; at least 1.
int share_of_cores(const std::vector<CoreClaim>& claims, int rank);

/// The same, for the calling rank. Collective.
int share_of_cores(const Session& session);

}  // namespace lockstep::strategy
