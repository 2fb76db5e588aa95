#include "lockstep/allreduce/route.h"

#include <array>

#include "lockstep/allreduce/transport/mpi.h"
#include "lockstep/allreduce/transport/node_memory.h"
#include "lockstep/base/error.h"

namespace lockstep::allreduce {
namespace {

struct RouteName {
  Route route;
  std::string_view name;
};

constexpr std::array<RouteName, 8> kRoutes = {{{Route::automatic, "auto"},
                                               {Route::in_process, "in-process"},
                                               {Route::shared_memory, "shared-memory"},
                                               {Route::ring, "ring"},
                                               {Route::hierarchical, "hierarchical"},
                                               {Route::mpi, "mpi"},
                                               {Route::nccl, "nccl"},
                                               {Route::staged, "staged"}}};
constexpr std::string_view kRouteNames = "auto, in-process, shared-memory, ring, hierarchical, mpi, nccl or staged";

}  // namespace

Route parse_route(std::string_view name) {
  for (const RouteName& known : kRoutes)
    if (known.name == name) return known.route;
  throw Error(ErrorCategory::input, "--allreduce", fmt::format("expected {}", kRouteNames),
              fmt::format("got \"{}\"", name));
}

std::string to_string(Route route) {
  for (const RouteName& known : kRoutes)
    if (known.route == route) return std::string(known.name);
  return "unknown";
}

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
