// How long all-reduces take, route against route.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/allreduce/groups.h"
#include "lockstep/job/session.h"

namespace lockstep::apps {

/// What to time.
struct ReductionPlan {
  std::vector<std::size_t> bytes;  ///< sizes of the reduced buffer
  std::string dtype = "float32";   ///< a name of element_types.h
  std::vector<allreduce::Route> routes;
  int iterations = 0;  ///< measurements of each size and route; 0: as many as half a second holds, 3 to 500
  bool check = false;
};

/// One size on one route.
struct ReductionTiming {
  allreduce::Route route{};
  std::string carrier;  ///< what moved the bytes, Communicator::route()
  std::size_t bytes = 0;
  double microseconds = 0;  ///< of one call: the median over the iterations of the slowest replica's time
  double best_microseconds = 0;
  int iterations = 0;
  int calls = 0;                       ///< timed in each iteration, one after the other
  std::optional<std::int64_t> errors;  ///< wrong elements over all replicas, if they were looked for
};

/// What the chief is told while it goes on, from the thread that called.
struct ReductionListener {
  std::function<void(std::size_t bytes)> size_begins;
  std::function<void(const ReductionTiming& timing)> timed;
};

/// Times in-place sums over `local_replicas` replicas of each rank. The routes take turns within a size, so that what
/// disturbs the machine disturbs them alike. A turn begins with a call that does not count: without it each route would
/// find the caches full of the other's buffers, which it would not in a training that uses one route. Then comes a
/// barrier, the same one for all routes, and as many calls as fill 200 microseconds. Route mpi is MPI_Allreduce alone,
/// where every rank has one replica and MPI knows the type; elsewhere it is the group that stands on it. Collective.
/// Returns the number of wrong elements, the same on all ranks. Throws Error (input) for routes that do not connect
/// these replicas.
std::int64_t time_reductions(job::Session& session, int local_replicas, const ReductionPlan& plan,
                             const ReductionListener& chief);

}  // namespace lockstep::apps
