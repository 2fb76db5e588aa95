#include "allreduce/topology.h"

#include "allreduce/routes/node_memory.h"

namespace lockstep::allreduce {

Topology::Topology(MPI_Comm ranks) {
  MPI_Comm_size(ranks, &ranks_);
  MPI_Comm_split_type(ranks, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node_);
  int rank_in_node = 0;
  MPI_Comm_rank(node_, &rank_in_node);
  MPI_Comm_size(node_, &most_ranks_);
  MPI_Allreduce(MPI_IN_PLACE, &most_ranks_, 1, MPI_INT, MPI_MAX, ranks);
  nodes_ = rank_in_node == 0 ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &nodes_, 1, MPI_INT, MPI_SUM, ranks);
  shares_memory_ = can_share_memory(ranks, node_);
}

Topology::~Topology() { MPI_Comm_free(&node_); }

std::vector<Route> Topology::candidates() const {
  if (most_ranks_ == 1 || !shares_memory_) return {Route::ring};
  return {nodes_ == 1 ? Route::shared_memory : Route::hierarchical, Route::ring};
}

}  // namespace lockstep::allreduce
