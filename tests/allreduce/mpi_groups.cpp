#include <fmt/format.h>

#include "lockstep/allreduce/algorithm/gpu/nccl.h"
#include "lockstep/allreduce/algorithm/hierarchical.h"
#include "lockstep/allreduce/algorithm/message_group.h"
#include "tests/allreduce/group_kinds.h"
#include "tests/allreduce/wrapped_groups.h"
#include "tests/support/mpi_ranks.h"

namespace lockstep::inline v0::allreduce {
namespace {

std::vector<Communicator> make_rings(const RingOptions& options) {
  return {Communicator(make_ring(transport_of(), options))};
}

std::vector<Communicator> make_nodes(int node) {
  auto ranks = transport_of(MPI_COMM_WORLD, node);
  const Communicator here = ranks_of_node(make_ranks(ranks->duplicate()));
  return {Communicator(
      make_hierarchical(std::move(ranks), here, {.small_bytes = 64, .segment_bytes = 4096}))};
}

}  // namespace

std::vector<GroupKind> group_kinds() {
  const int ranks = world_size();
  const auto between = [](Route route) { return std::vector{make_rank_group(ranks_of(), route)}; };
  const auto workers = [](int replicas, Route route) {
    return make_multi_worker_group(ranks_of(), replicas, route);
  };
  // Rank r drives 1 + r % 2 replicas: 1, 2, 1, 2.
  const int uneven = ranks + ranks / 2;
  std::vector<GroupKind> kinds = {
      {.name = "ring", .size = ranks, .make = [=] { return between(Route::ring); }},
      // Rings that split even small buffers into many segments, some of them empty; and one that
      // never splits.
      {.name = "ring_of_small_segments",
       .size = ranks,
       .make = [] { return make_rings({.small_bytes = 0, .segment_bytes = 4096}); }},
      {.name = "ring_of_tiny_segments",
       .size = ranks,
       .make = [] { return make_rings({.small_bytes = 0, .segment_bytes = 256}); }},
      {.name = "small_buffers",
       .size = ranks,
       .make = [] { return make_rings({.small_bytes = 1 << 20}); }},
      {.name = "shared_memory",
       .size = ranks,
       .make = [=] { return between(Route::shared_memory); },
       .adds_in_member_order = ranks > 2},
      {.name = "hierarchical", .size = ranks, .make = [=] { return between(Route::hierarchical); }},
      {.name = "mpi",
       .size = ranks,
       .make = [=] { return between(Route::mpi); },
       .is_exact = false},
      {.name = "workers_of_1", .size = ranks, .make = [=] { return workers(1, Route::automatic); }},
      {.name = "workers_of_2",
       .size = 2 * ranks,
       .make = [=] { return workers(2, Route::ring); },
       .named_with_last = 2 * ranks - 2},
      {.name = "workers_of_2_by_shared_memory",
       .size = 2 * ranks,
       .make = [=] { return workers(2, Route::shared_memory); },
       .named_with_last = 2 * ranks - 2},
      {.name = "workers_of_2_by_mpi",
       .size = 2 * ranks,
       .make = [=] { return workers(2, Route::mpi); },
       .is_exact = false,
       .named_with_last = 2 * ranks - 2},
      {.name = "uneven_workers",
       .size = uneven,
       .make = [=] { return workers(1 + world_rank() % 2, Route::ring); },
       .named_with_last = ranks % 2 == 0 ? uneven - 2 : 0},
  };
  // Nodes of two ranks each, and a node of one rank beside a node of all others, as if on different
  // hosts.
  for (const bool even : {true, false})
    kinds.push_back({.name = even ? "nodes_of_2" : "uneven_nodes", .size = ranks, .make = [even] {
                       return make_nodes(even ? world_rank() / 2 : world_rank() > 0);
                     }});
  // With a real GPU for each rank, all on this node.
  const device::Device gpu = {device::DeviceKind::gpu, world_rank()};
  if (nccl_built_version() != "absent" && static_cast<int>(device::list_gpus().size()) >= ranks)
    for (const Route route : {Route::nccl, Route::hierarchical})
      kinds.push_back(
          {.name = route == Route::nccl ? "nccl" : "nccl_and_ring",
           .size = ranks,
           .make = [=] { return on_gpus(make_device_group(ranks_of(), {gpu}, route), {gpu}); },
           .is_exact = false});
  return kinds;
}

}  // namespace lockstep::inline v0::allreduce
