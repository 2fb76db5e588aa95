// What the links between ranks carry.
#pragma once

#include "apps/lockstep/doctor/network.h"
#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::apps::doctor {

/// What came to one rank from the one before it, while all sent to the next.
struct LinkFacts {
  int from = -1;         ///< the rank before; -1: this rank took no part
  double gigabytes = 0;  ///< a second, 10^9 bytes

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(LinkFacts, from, gigabytes)
};

/// Collective. MPI's messages round a circle: of the first ranks of all hosts, or of all ranks of one host.
Reports<LinkFacts> measure_links(Ranks& ranks, double seconds);

/// `links`: one that is slower than the others, or than its interface says.
Outcome judge_links(const Reports<LinkFacts>& links, const Reports<NetworkFacts>& network);

/// The slowest link; 0 where none was measured.
double slowest_link(const Reports<LinkFacts>& links);

}  // namespace lockstep::apps::doctor
