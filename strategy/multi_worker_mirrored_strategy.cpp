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

allreduce::Selection select(const Session& session, const StrategyOptions& options) {
  if (session.size() == 1) return {};
  if (options.route != allreduce::Route::automatic) return {options.route, "as asked for"};
  return allreduce::select_route(session.ranks(), options.remembered_route);
}

}  // namespace

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(Session& session, std::vector<device::Device> devices,
                                                         const StrategyOptions& options)
    : MultiWorkerMirroredStrategy(session, std::move(devices), options, select(session, options)) {}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(Session& session, std::vector<device::Device> devices,
                                                         const StrategyOptions& options, allreduce::Selection selection)
    : Strategy(session, devices, group_of_ranks(session, devices.size(), selection.route), one_member_a_rank(session),
               options),
      selection_(std::move(selection)) {}

}  // namespace lockstep::strategy
