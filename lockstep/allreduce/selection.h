// Which route `auto` takes between ranks, and why.
#pragma once

#include <mpi.h>

#include <optional>
#include <string>

#include "lockstep/allreduce/route.h"

namespace lockstep::allreduce {

/// Which route was chosen, and why.
struct Selection {
  Route route = Route::automatic;  ///< never `automatic` when selected
  std::string reason;              ///< for people: "4 ranks on one node", "1 MiB takes 12.1 ms, by ring 18.3 ms"
};

/// Where the topology leaves several routes, all are timed on messages that grow until one takes long enough to tell,
/// in half a second at most; the fastest wins. Times are those of the slowest rank, so all ranks select the same. What
/// was `remembered` from an earlier run of the same training is taken again where it is possible, since another route
/// adds in another order and rounds differently. Collective over `ranks`.
Selection select_route(MPI_Comm ranks, std::optional<Route> remembered = {});

}  // namespace lockstep::allreduce
