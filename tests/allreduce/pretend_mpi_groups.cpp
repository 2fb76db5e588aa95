// Groups of ranks on pretended GPUs, one or two a rank, for whose members all memory is on these.
#include <mpi.h>

#include "lockstep/allreduce/algorithm/gpu/nccl.h"
#include "lockstep/allreduce/groups.h"
#include "lockstep/allreduce/transport/mpi.h"
#include "tests/allreduce/group_kinds.h"
#include "tests/support/pretend_gpu.h"

namespace lockstep::allreduce {
namespace {

int rank_in_world() { return rank_in(MPI_COMM_WORLD); }

std::vector<Communicator> make_nodes(int node) {
  MPI_Comm ranks_of_node = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, node, rank_in_world(), &ranks_of_node);
  const auto host =
      std::dynamic_pointer_cast<MpiGroup>(make_mpi_group(MPI_COMM_WORLD, Route::ring).impl());
  const device::Device gpu = pretend::gpus(1, rank_in_world()).front();
  Communicator group(
      make_nccl_hierarchical(host, gpu, MPI_COMM_WORLD, ranks_of_node, {.segment_bytes = 4096}));
  MPI_Comm_free(&ranks_of_node);
  return {group};
}

}  // namespace

std::vector<GroupKind> group_kinds() {
  const int ranks = size_of(MPI_COMM_WORLD);
  const int rank = rank_in_world();
  std::vector<GroupKind> kinds = {
      {.name = "nccl",
       .size = ranks,
       .make =
           [=] {
             return make_device_group(MPI_COMM_WORLD, pretend::gpus(1, rank), Route::automatic);
           }},
      {.name = "nccl_with_2_gpus_a_rank",
       .size = 2 * ranks,
       .make =
           [=] {
             return make_device_group(MPI_COMM_WORLD, pretend::gpus(2, 2 * rank), Route::nccl);
           },
       .named_beside_last_in_control = 2 * ranks - 2},
      {.name = "staged_on_one_gpu",
       .size = ranks,
       .make =
           [] {
             return make_device_group(MPI_COMM_WORLD, pretend::gpus(1), Route::automatic, true);
           }},
      {.name = "hierarchical_on_one_node", .size = ranks, .make = [=] {
         return make_device_group(MPI_COMM_WORLD, pretend::gpus(1, rank), Route::hierarchical);
       }}};
  // Nodes of two ranks, and nodes of one and of all the others, as if these were on different
  // hosts.
  for (const bool even : {true, false})
    kinds.push_back({.name = even ? "nodes_of_2" : "uneven_nodes", .size = ranks, .make = [=] {
                       return make_nodes(even ? rank / 2 : rank > 0);
                     }});
  for (GroupKind& kind : kinds)
    kind.setting = [] { return std::make_shared<pretend::AllMemoryIsOnGpus>(); };
  return kinds;
}

}  // namespace lockstep::allreduce
