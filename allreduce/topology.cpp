#include "allreduce/topology.h"

#include "allreduce/mpi_ranks.h"
#include "allreduce/routes/node_memory.h"

namespace lockstep::allreduce {

Topology::Topology(MPI_Comm ranks) : ranks_(size_of(ranks)) {
  MPI_Comm_split_type(ranks, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node_);
  most_ranks_ = size_of(node_);
  MPI_Allreduce(MPI_IN_PLACE, &most_ranks_, 1, MPI_INT, MPI_MAX, ranks);
  nodes_ = rank_in(node_) == 0 ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &nodes_, 1, MPI_INT, MPI_SUM, ranks);
  shares_memory_ = can_share_memory(ranks, node_);
}

Topology::~Topology() { MPI_Comm_free(&node_); }

std::vector<Route> Topology::candidates() const {
  if (most_ranks_ == 1 || !shares_memory_) return {Route::ring};
  return {nodes_ == 1 ? Route::shared_memory : Route::hierarchical, Route::ring};
}

}  // namespace lockstep::allreduce
