// How many cores are a rank's own.
#pragma once

#include <string>
#include <vector>

#include "strategy/session.h"

namespace lockstep::strategy {

/// What a rank tells the others: its node, and the processors it may run on.
struct CoreClaim {
  int node = 0;
  std::string processors;  ///< one character a processor, '1' where the rank may run

  bool operator==(const CoreClaim&) const = default;
};

/// The cores of rank `rank`: its processors, divided by the ranks of the same node that were given exactly the same
/// ones (as with
/// `--bind-to none`); at least 1.
int share_of_cores(const std::vector<CoreClaim>& claims, int rank);

/// The same, for the calling rank. Collective.
int share_of_cores(const Session& session);

}  // namespace lockstep::strategy
