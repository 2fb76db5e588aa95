// What each route of a reduction makes of the links between ranks.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "apps/lockstep/doctor/ranks.h"
#include "lockstep/allreduce/route.h"

namespace lockstep::apps::doctor {

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

}  // namespace lockstep::apps::doctor
