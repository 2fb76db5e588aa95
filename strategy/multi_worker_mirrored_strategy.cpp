#include "strategy/multi_worker_mirrored_strategy.h"

#include <fmt/format.h>

#include "device/error.h"
#include "strategy/cluster.h"

namespace lockstep::strategy {
namespace {

/// Every rank throws what any of them has to say about its TF_CONFIG, so that none waits for the others.
void check_tf_config(const Session& session) {
  std::string problem;
  try {
    if (const auto cluster = Cluster::from_environment()) cluster->check_against_mpi(session.rank(), session.size());
  } catch (const Error& error) {
    problem = error.what();
  }
  const std::vector<std::string> problems = session.all_gather(problem);
  for (std::size_t rank = 0; rank < problems.size(); ++rank)
    if (!problems[rank].empty())
      throw Error(ErrorCategory::input, "strategy", "needed a TF_CONFIG that agrees with MPI on every rank, or none",
                  fmt::format("rank {}: {}", rank, problems[rank]));
}

allreduce::Communicator one_member_a_rank(const Session& session) {
  if (session.ranks() == MPI_COMM_NULL) return allreduce::make_in_process_group(1).front();
  return allreduce::make_mpi_group(session.ranks(), allreduce::Route::mpi);
}

std::vector<allreduce::Communicator> group_of_ranks(const Session& session, std::size_t replicas,
                                                    allreduce::Route route) {
  check_tf_config(session);
  if (replicas == 0)
    throw Error(ErrorCategory::input, "strategy", "multi-worker-mirrored needs at least one device a rank",
                "got an empty list");
  if (session.ranks() == MPI_COMM_NULL) return allreduce::make_in_process_group(static_cast<int>(replicas));
  return allreduce::make_multi_worker_group(session.ranks(), static_cast<int>(replicas), route);
}

}  // namespace

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(Session& session, std::vector<device::Device> devices,
                                                         allreduce::Route route)
    : Strategy(session, devices, group_of_ranks(session, devices.size(), route), one_member_a_rank(session)) {}

}  // namespace lockstep::strategy
