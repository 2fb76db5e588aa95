// How far the clocks of the hosts are apart.
#pragma once

#include <string>
#include <vector>

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::apps::doctor {

/// A host's clock against that of rank 0's host.
struct ClockReading {
  Place place = {};              ///< of the host's first rank
  double seconds_ahead = 0;      ///< of rank 0's clock
  double seconds_uncertain = 0;  ///< either way: half of the shortest round trip
};

/// Collective. Rank 0 asks the first rank of every other host what time it is there; empty on the others.
std::vector<ClockReading> measure_clocks(Ranks& ranks);

/// `clocks`.
Outcome judge_clocks(const std::vector<ClockReading>& readings);

}  // namespace lockstep::apps::doctor
