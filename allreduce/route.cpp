#include "allreduce/route.h"

#include <array>

#include "device/error.h"

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
  throw Error(ErrorCategory::input, "--allreduce", fmt::format("needed {}", kRouteNames),
              fmt::format("got \"{}\"", name));
}

std::string to_string(Route route) {
  for (const RouteName& known : kRoutes)
    if (known.route == route) return std::string(known.name);
  return "unknown";
}

}  // namespace lockstep::allreduce
