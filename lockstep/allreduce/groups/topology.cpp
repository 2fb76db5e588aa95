#include "lockstep/allreduce/groups/topology.h"

#include <algorithm>
#include <vector>

#include "lockstep/allreduce/algorithm/node_memory.h"
#include "lockstep/allreduce/transport/mpi.h"

namespace lockstep::inline v0::allreduce {

Topology::Topology(MPI_Comm ranks) : ranks_(size_of(ranks)) {
  MPI_Comm_split_type(ranks, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node_);
  max_ranks_per_node_ = size_of(node_);
  MPI_Allreduce(MPI_IN_PLACE, &max_ranks_per_node_, 1, MPI_INT, MPI_MAX, ranks);
  nodes_ = rank_in(node_) == 0 ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &nodes_, 1, MPI_INT, MPI_SUM, ranks);
  shares_memory_ = can_share_memory(ranks, node_);
}

Topology::~Topology() { MPI_Comm_free(&node_); }

std::vector<Route> Topology::routes() const {
  const bool uses_memory = max_ranks_per_node_ > 1 && shares_memory_;
  const Medium with_memory = nodes_ == 1 ? Medium::memory : Medium::memory_and_messages;
  std::vector<Route> routes;
  for (const RouteInfo& row : all_routes()) {
    if (row.route == Route::automatic || !row.ranks) continue;
    if (row.medium == Medium::messages || (uses_memory && row.medium == with_memory))
      routes.push_back(row.route);
  }
  std::ranges::stable_sort(routes, {}, [](Route route) { return info_of(route).medium; });
  return routes;
}

std::vector<Route> Topology::candidates() const {
  std::vector<Route> candidates = routes();
  std::erase_if(candidates, [](Route route) { return info_of(route).only_on_request; });
  return candidates;
}

}  // namespace lockstep::inline v0::allreduce
