// Check: bandwidth of the links between ranks.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "apps/lockstep/doctor/network.h"
#include "apps/lockstep/doctor/ranks.h"
#include "lockstep/allreduce/groups/route.h"

namespace lockstep::inline v0::apps::doctor {

/// Receive rate of one rank while every rank sends to the next one.
struct LinkFacts {
  int from = -1;         ///< the previous rank; -1: this rank did not participate
  double gigabytes = 0;  ///< GB/s, 10^9 bytes

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(LinkFacts, from, gigabytes)
};

/// Collective. Sends messages around a ring of the first ranks of all hosts, or of all ranks of
/// a single host.
Reports<LinkFacts> measure_links(Ranks& ranks, double seconds);

/// `links`: links that are much slower than the others, or than the speed of their interface.
Outcome judge_links(const Reports<LinkFacts>& links, const Reports<NetworkFacts>& network);

/// The rate of the slowest link in GB/s; 0 if none was measured.
double slowest_link(const Reports<LinkFacts>& links);

// Check: bandwidth of each all-reduce route, compared with that of memory and links.

/// The result of an all-reduce over all replicas on one route.
struct RouteReading {
  allreduce::Route route = allreduce::Route::automatic;
  std::size_t bytes = 0;
  /// Bus bandwidth in GB/s: buffer size per second x 2(n-1)/n for n members.
  double bus_gigabytes = 0;
  /// GB/s through the resource that limits the route: a rank's memory, or a host's link.
  double carried_gigabytes = 0;
  std::string failure = {};  ///< why there is no result; empty on success
};

/// Collective. Times `routes`; if empty, all routes that connect these ranks, or two replicas of a
/// single process.
std::vector<RouteReading> measure_routes(Ranks& ranks, std::vector<allreduce::Route> routes,
                                         double seconds);

/// Reference bandwidths for routes, in GB/s.
struct LinkSpeeds {
  double copied_gigabytes = 0;  ///< memory copy of the slowest rank; 0: unknown
  double wire_gigabytes = 0;    ///< slowest link between hosts; 0: there is none
};

/// `routes`: routes that fail, or are much slower than memory or links.
Outcome judge_routes(const std::vector<RouteReading>& readings, const LinkSpeeds& speeds);

}  // namespace lockstep::inline v0::apps::doctor
