// The choice of a route between ranks for `auto`.
#pragma once

#include <optional>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/groups/route.h"

namespace lockstep::inline v0::allreduce {

/// If the topology allows several routes, all are timed on messages of increasing size until one
/// takes long enough to measure, in at most half a second, and the fastest is selected. Times are
/// those of the slowest rank, so all ranks select the same route. A route `remembered` from an
/// earlier run of the same training is reused if possible, because another route adds in another
/// order and rounds differently. Collective over `ranks`.
Selection select_route(const Communicator& ranks, std::optional<Route> remembered = {});

}  // namespace lockstep::inline v0::allreduce
