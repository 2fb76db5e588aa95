#include "strategy/multi_worker_mirrored_strategy.h"

#include <fmt/format.h>

#include <algorithm>

#include "allreduce/device_groups.h"
#include "device/error.h"
#include "strategy/tf_config.h"

namespace lockstep::strategy {
namespace {

constexpr const char* kSetUp = "the set-up of the replicas";  // for the watchdog

allreduce::Communicator one_member_a_rank(const Session& session) {
  const allreduce::CollectiveScope scope(&session.activity(), kSetUp);
  if (session.ranks() == MPI_COMM_NULL) return allreduce::make_in_process_group(1).front();
  return allreduce::make_mpi_group(session.ranks(), allreduce::Route::mpi);
}

bool is_any_on_gpu(const std::vector<device::Device>& devices) {
  return std::ranges::find(devices, device::DeviceKind::gpu, &device::Device::kind) != devices.end();
}

std::vector<allreduce::Communicator> group_of_ranks(const Session& session, const std::vector<device::Device>& devices,
                                                    allreduce::Route route, bool share_gpus) {
  const allreduce::CollectiveScope scope(&session.activity(), kSetUp);
  check_tf_config(session);
  if (devices.empty())
    throw Error(ErrorCategory::input, "strategy", "multi-worker-mirrored needs at least one device a rank",
                "got an empty list");
  return allreduce::make_device_group(session.ranks(), devices, route, share_gpus);
}

// Between GPUs the route follows from where they are; there is nothing to measure.
allreduce::Selection select(const Session& session, const std::vector<device::Device>& devices,
                            const StrategyOptions& options) {
  const allreduce::CollectiveScope scope(&session.activity(), kSetUp);
  if (session.size() == 1) return {};
  if (options.route != allreduce::Route::automatic) return {options.route, "as asked for"};
  const std::vector<std::string> all = session.all_gather(is_any_on_gpu(devices) ? "gpu" : "cpu");
  if (std::ranges::find(all, "gpu") != all.end())
    return {allreduce::Route::automatic, fmt::format("GPUs of {} ranks", session.size())};
  return allreduce::select_route(session.ranks(), options.remembered_route);
}

}  // namespace

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(Session& session, std::vector<device::Device> devices,
                                                         const StrategyOptions& options)
    : MultiWorkerMirroredStrategy(session, devices, options, select(session, devices, options)) {}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(Session& session, std::vector<device::Device> devices,
                                                         const StrategyOptions& options, allreduce::Selection selection)
    : Strategy(session, devices, group_of_ranks(session, devices, selection.route, options.share_gpus),
               one_member_a_rank(session), options),
      selection_(std::move(selection)) {}

}  // namespace lockstep::strategy
