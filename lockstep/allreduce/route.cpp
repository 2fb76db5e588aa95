#include "lockstep/allreduce/route.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lockstep/allreduce/transport/mpi.h"
#include "lockstep/allreduce/transport/node_memory.h"
#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::allreduce {
namespace {

constexpr auto kRoutes = std::to_array<RouteInfo>({
    {.route = Route::automatic,
     .name = "auto",
     .usage = "",
     .process = true,
     .ranks = true,
     .gpus = true,
     .gpus_of_ranks = true,
     .shared_gpus = true},
    {.route = Route::in_process,
     .name = "in-process",
     .usage = "replicas of one process",
     .process = true,
     .gpus = true,
     .medium = Medium::memory},
    {.route = Route::shared_memory,
     .name = "shared-memory",
     .usage = "ranks of one node",
     .ranks = true,
     .medium = Medium::memory},
    {.route = Route::ring, .name = "ring", .usage = "ranks", .ranks = true},
    {.route = Route::hierarchical,
     .name = "hierarchical",
     .usage = "ranks of several nodes; between GPUs another name of nccl",
     .ranks = true,
     .gpus_of_ranks = true,
     .medium = Medium::memory_and_messages},
    {.route = Route::mpi,
     .name = "mpi",
     .usage = "ranks, by MPI_Allreduce, for comparison",
     .ranks = true,
     .only_on_request = true},
    {.route = Route::nccl, .name = "nccl", .usage = "GPUs", .gpus = true, .gpus_of_ranks = true},
    {.route = Route::staged,
     .name = "staged",
     .usage = "GPUs, through host memory",
     .gpus = true,
     .gpus_of_ranks = true,
     .shared_gpus = true},
});

}  // namespace

std::span<const RouteInfo> all_routes() { return kRoutes; }

const RouteInfo& info_of(Route route) {
  const auto row = std::ranges::find(kRoutes, route, &RouteInfo::route);
  LOCKSTEP_CHECK(row != kRoutes.end());
  return *row;
}

Route parse_route(std::string_view name) {
  std::vector<std::string_view> known;
  for (const RouteInfo& row : kRoutes) {
    if (row.name == name) return row.route;
    known.push_back(row.name);
  }
  refuse_name("--allreduce", name, known);
}

std::string to_string(Route route) { return std::string(info_of(route).name); }

std::string route_names(const RouteFilter& filter) {
  std::vector<std::string_view> names;
  for (const RouteInfo& row : kRoutes)
    if (filter(row)) names.push_back(row.name);
  return list_names(names, " or ");
}

std::string describe_routes(const RouteFilter& filter) {
  std::vector<std::string> texts;
  for (const RouteInfo& row : kRoutes)
    if (filter(row))
      texts.push_back(row.usage.empty() ? std::string(row.name)
                                        : fmt::format("{} ({})", row.name, row.usage));
  return list_names(std::vector<std::string_view>(texts.begin(), texts.end()), " or ");
}

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
  for (const RouteInfo& row : kRoutes) {
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

}  // namespace lockstep::allreduce
