// Groups of ranks on simulated GPUs, one or two per rank; all memory counts as GPU memory.
#include "lockstep/allreduce/groups/groups.h"
#include "tests/allreduce/group_kinds.h"
#include "tests/support/mpi_ranks.h"
#include "tests/support/pretend_gpu.h"

namespace lockstep::inline v0::allreduce {
std::vector<GroupKind> group_kinds() {
  const int ranks = world_size();
  const int rank = world_rank();
  std::vector<GroupKind> kinds = {
      {.name = "nccl",
       .size = ranks,
       .make =
           [=] { return make_device_group(ranks_of(), pretend::gpus(1, rank), Route::automatic); }},
      {.name = "nccl_with_2_gpus_a_rank",
       .size = 2 * ranks,
       .make =
           [=] { return make_device_group(ranks_of(), pretend::gpus(2, 2 * rank), Route::nccl); },
       .named_with_last_in_control = 2 * ranks - 2},
      {.name = "staged_on_one_gpu", .size = ranks, .make = [] {
         return make_device_group(ranks_of(), pretend::gpus(1), Route::automatic, true);
       }}};
  for (GroupKind& kind : kinds)
    kind.setting = [] { return std::make_shared<pretend::AllMemoryIsOnGpus>(); };
  return kinds;
}

}  // namespace lockstep::inline v0::allreduce
