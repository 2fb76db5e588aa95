#include "lockstep/allreduce/route.h"

#include "lockstep/allreduce/transport/mpi.h"
#include "lockstep/allreduce/transport/node_memory.h"
#include "lockstep/base/enum_names.h"

namespace lockstep::allreduce {
namespace {

constexpr auto kRoutes = enum_names<Route>({{Route::automatic, "auto"},
                                            {Route::in_process, "in-process"},
                                            {Route::shared_memory, "shared-memory"},
                                            {Route::ring, "ring"},
                                            {Route::hierarchical, "hierarchical"},
                                            {Route::mpi, "mpi"},
                                            {Route::nccl, "nccl"},
                                            {Route::staged, "staged"}});

}  // namespace

Route parse_route(std::string_view name) { return kRoutes.parse("--allreduce", name); }

std::string to_string(Route route) { return std::string(kRoutes.name(route)); }

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
