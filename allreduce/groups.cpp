#include "allreduce/groups.h"

#include <algorithm>
#include <utility>

#include "allreduce/communicator_impl.h"
#include "allreduce/device_groups.h"
#include "allreduce/mpi_ranks.h"
#include "allreduce/routes/hierarchical.h"
#include "allreduce/routes/in_process.h"
#include "allreduce/routes/mpi_library.h"
#include "allreduce/routes/multi_worker.h"
#include "allreduce/routes/one_member.h"
#include "allreduce/routes/ring.h"
#include "allreduce/routes/shared_memory.h"
#include "allreduce/topology.h"
#include "device/error.h"

namespace lockstep::allreduce {
namespace {

std::shared_ptr<MpiGroup> make_between_ranks(MPI_Comm ranks, Route route) {
  if (route == Route::nccl) require_nccl({});
  if (route == Route::staged) require_gpus(route, {device::Device{}});
  if (route == Route::mpi) return make_mpi_library(ranks);
  if (route == Route::ring) return make_ring(ranks);
  if (route == Route::in_process)
    throw Error(ErrorCategory::input, "--allreduce",
                "needed auto, shared-memory, ring, hierarchical or mpi between ranks",
                fmt::format("got in-process for {} ranks", size_of(ranks)));
  const Topology topology(ranks);
  const Route chosen = route == Route::automatic ? topology.candidates().front() : route;
  if (chosen == Route::ring) return make_ring(ranks);
  if (chosen == Route::hierarchical) return make_hierarchical(ranks, topology.node());
  if (topology.nodes() > 1)
    throw Error(ErrorCategory::input, "--allreduce", "needed auto, ring, hierarchical or mpi between nodes",
                "got shared-memory for ranks of several nodes");
  return make_shared_memory(ranks);
}

std::vector<int> replicas_of_ranks(MPI_Comm ranks, int local_replicas) {
  std::vector<int> replicas(static_cast<std::size_t>(size_of(ranks)));
  const int status = MPI_Allgather(&local_replicas, 1, MPI_INT, replicas.data(), 1, MPI_INT, ranks);
  if (status != MPI_SUCCESS)
    throw Error(ErrorCategory::communication, "mpi", "needed the number of replicas of each rank",
                fmt::format("MPI error {}", status));
  return replicas;
}

std::vector<Communicator> handles(std::vector<std::shared_ptr<Communicator::Impl>> members) {
  std::vector<Communicator> group;
  for (auto& member : members) group.emplace_back(std::move(member));
  return group;
}

}  // namespace

std::vector<Communicator> make_in_process_group(int size) {
  LOCKSTEP_CHECK_OP(size, >, 0);
  if (size == 1) return handles({make_one_member()});
  return handles(make_in_process(size));
}

Communicator make_mpi_group(MPI_Comm ranks, Route route) {
  if (size_of(ranks) == 1) return Communicator(make_one_member());
  return Communicator(make_between_ranks(ranks, route));
}

std::vector<Communicator> make_multi_worker_group(MPI_Comm ranks, int local_replicas, Route route) {
  LOCKSTEP_CHECK_OP(local_replicas, >, 0);
  const std::vector<int> replicas = replicas_of_ranks(ranks, local_replicas);
  if (replicas.size() == 1) return make_in_process_group(local_replicas);
  auto between = make_between_ranks(ranks, route);
  // A rank with one replica among others with one is a plain member; among others with more it must speak their
  // protocol.
  if (std::ranges::all_of(replicas, [](int count) { return count == 1; })) return {Communicator(std::move(between))};
  return handles(make_multi_worker(std::move(between), replicas));
}

}  // namespace lockstep::allreduce
