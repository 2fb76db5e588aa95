#include "strategy/mirrored_strategy.h"

#include <fmt/format.h>

#include "allreduce/groups.h"
#include "device/error.h"

namespace lockstep::strategy {
namespace {

std::vector<allreduce::Communicator> group_of_threads(const Session& session, std::size_t replicas) {
  if (session.size() > 1)
    throw Error(ErrorCategory::input, "strategy", "mirrored needs a job of one rank; use multi-worker-mirrored",
                fmt::format("this job has {} ranks", session.size()));
  if (replicas == 0)
    throw Error(ErrorCategory::input, "strategy", "mirrored needs at least one device", "got an empty list");
  return allreduce::make_in_process_group(static_cast<int>(replicas));
}

}  // namespace

MirroredStrategy::MirroredStrategy(Session& session, std::vector<device::Device> devices,
                                   const StrategyOptions& options)
    : Strategy(session, devices, group_of_threads(session, devices.size()), allreduce::make_in_process_group(1).front(),
               options) {}

}  // namespace lockstep::strategy
