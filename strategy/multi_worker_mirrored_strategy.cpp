#include "strategy/multi_worker_mirrored_strategy.h"

#include "device/error.h"
#include "strategy/tf_config.h"

namespace lockstep::strategy {
namespace {

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
                                                         const StrategyOptions& options)
    : Strategy(session, devices, group_of_ranks(session, devices.size(), options.route), one_member_a_rank(session),
               options) {}

}  // namespace lockstep::strategy
