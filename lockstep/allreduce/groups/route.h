// The table of routes of an all-reduce.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::inline v0::allreduce {

/// `automatic` selects by topology and measurement (select_route).
enum class Route { automatic, in_process, shared_memory, ring, hierarchical, mpi, nccl, staged };

/// How values move between replicas on CPUs, the fastest (expected) first.
enum class Medium {
  memory,               ///< memory that all members share, so they are on one host
  memory_and_messages,  ///< shared memory within a host, messages between hosts
  messages              ///< messages between ranks
};

/// The properties of a route, whose groups groups.h creates. Options, help texts, errors and
/// measurements follow from these.
struct RouteInfo {
  Route route = Route::automatic;  ///< the key of the row
  std::string_view name;           ///< as a value of `--allreduce`
  std::string_view usage;          ///< a short phrase for help texts; may be empty
  // What the route connects.
  bool process = false;              ///< replicas of one process, on CPUs
  bool ranks = false;                ///< replicas of several ranks, on CPUs
  bool gpus = false;                 ///< GPUs of one process
  bool gpus_of_ranks = false;        ///< GPUs of several ranks
  bool shared_gpus = false;          ///< GPUs of several ranks, some of which share one
  Medium medium = Medium::messages;  ///< between replicas on CPUs
  bool only_on_request = false;      ///< `automatic` never selects it between ranks on CPUs

  /// Whether it connects replicas on CPUs, so that allreduce-bench and the doctor can time it.
  bool is_for_cpus() const { return process || ranks; }
  /// Whether it connects replicas of a single process, on CPUs or GPUs.
  bool connects_process() const { return process || gpus; }
  /// Whether it connects replicas of several ranks, on CPUs or GPUs.
  bool connects_ranks() const { return ranks || gpus_of_ranks; }
};

/// One row per route, `automatic` first.
std::span<const RouteInfo> all_routes();
/// The row of `route`.
const RouteInfo& info_of(Route route);

/// Parses the value of `--allreduce`. Throws Error (input) that lists the names.
Route parse_route(std::string_view name);
/// The name that parse_route accepts.
std::string to_string(Route route);

/// A condition, such as &RouteInfo::ranks.
using RouteFilter = std::function<bool(const RouteInfo&)>;
/// The names of the routes with `filter`: "auto, nccl or staged".
std::string route_names(const RouteFilter& filter);
/// route_names() with the usage of each route: "auto, nccl (GPUs) or staged (GPUs, through host
/// memory)".
std::string describe_routes(const RouteFilter& filter);

/// A route that was selected, and the reason.
struct Selection {
  Route route = Route::automatic;  ///< never `automatic` when selected
  std::string reason;  ///< human-readable: "4 ranks on one node", "…; 1024 KiB take 12.1 ms by …"
};

}  // namespace lockstep::inline v0::allreduce
