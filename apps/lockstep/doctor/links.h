// What the links between ranks carry, and what each route makes of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allreduce/route.h"
#include "apps/lockstep/doctor/network.h"
#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::apps::doctor {

/// What came to one rank from the one before it, while all sent to the next.
struct LinkFacts {
  int from = -1;         ///< the rank before; -1: this rank took no part
  double gigabytes = 0;  ///< a second, 10^9 bytes

  NLOHMANN_DEFINE_TYPE_INTRUSIVE(LinkFacts, from, gigabytes)
};

/// Collective. MPI's messages round a circle: of the first ranks of all hosts, or of all ranks of one host.
Reports<LinkFacts> measure_links(Ranks& ranks, double seconds);

/// `links`: one that is slower than the others, or than its interface says.
Outcome judge_links(const Reports<LinkFacts>& links, const Reports<NetworkFacts>& network);

/// A sum over all replicas by one route.
struct RouteReading {
  std::string route = {};
  std::size_t bytes = 0;
  double bus_gigabytes = 0;      ///< of the buffer, a second, x 2(n-1)/n for n members
  double carried_gigabytes = 0;  ///< a second, by what the route is held against: a rank's memory, or a host's wire
  std::string failure = {};      ///< why there is no figure; empty where there is
};

/// Collective. Times `routes`; where there are none, those that connect these ranks (or two replicas of a process that
/// is alone) and MPI's own.
std::vector<RouteReading> measure_routes(Ranks& ranks, std::vector<allreduce::Route> routes, double seconds);

/// What the routes are held against.
struct LinkSpeeds {
  double copied_gigabytes = 0;  ///< the slowest rank's memory; 0: not known
  double wire_gigabytes = 0;    ///< the slowest link between hosts; 0: there is none
};

/// `routes`: those that fail, and those that are slow beside what carries them.
Outcome judge_routes(const std::vector<RouteReading>& readings, const LinkSpeeds& speeds);

/// The slowest link; 0 where none was measured.
double slowest_link(const Reports<LinkFacts>& links);

}  // namespace lockstep::apps::doctor
