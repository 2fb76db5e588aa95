#include "lockstep/allreduce/groups/route.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lockstep/allreduce/algorithm/node_memory.h"
#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::allreduce {
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

}  // namespace lockstep::inline v0::allreduce
