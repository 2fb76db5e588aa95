#include "lockstep/allreduce/groups/topology.h"

#include <algorithm>
#include <map>
#include <vector>

#include "lockstep/allreduce/algorithm/node_memory.h"
#include "lockstep/allreduce/groups/ranks.h"

namespace lockstep::inline v0::allreduce {
namespace {

std::map<int, int> ranks_by_node(const Communicator& ranks) {
  std::map<int, int> counts;
  for (int rank = 0; rank < ranks.size(); ++rank) ++counts[node_of(ranks, rank)];
  return counts;
}

}  // namespace

Topology::Topology(const Communicator& ranks)
    : node_(ranks_of_node(ranks)), ranks_(ranks.size()), is_over_mpi_(is_over_mpi(ranks)) {
  const std::map<int, int> counts = ranks_by_node(ranks);
  nodes_ = static_cast<int>(counts.size());
  for (const auto& [node, count] : counts)
    max_ranks_per_node_ = std::max(max_ranks_per_node_, count);
  shares_memory_ = can_share_memory(ranks, node_);
}

std::vector<Route> Topology::routes() const {
  const bool uses_memory = max_ranks_per_node_ > 1 && shares_memory_;
  const Medium with_memory = nodes_ == 1 ? Medium::memory : Medium::memory_and_messages;
  std::vector<Route> routes;
  for (const RouteInfo& row : all_routes()) {
    if (row.route == Route::automatic || !row.ranks) continue;
    if (row.route == Route::mpi && !is_over_mpi_) continue;
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
