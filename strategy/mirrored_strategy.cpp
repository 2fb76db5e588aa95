#include "strategy/mirrored_strategy.h"

#include <fmt/format.h>

#include "allreduce/device_groups.h"
#include "allreduce/groups.h"
#include "device/error.h"

namespace lockstep::strategy {
namespace {

std::vector<allreduce::Communicator> group_of_threads(const Session& session,
                                                      const std::vector<device::Device>& devices,
                                                      allreduce::Route route) {
  if (session.size() > 1)
    throw Error(ErrorCategory::input, "strategy", "mirrored needs a job of one rank; use multi-worker-mirrored",
                fmt::format("this job has {} ranks", session.size()));
  if (devices.empty())
    throw Error(ErrorCategory::input, "strategy", "mirrored needs at least one device", "got an empty list");
  return allreduce::make_device_group(session.ranks(), devices, route);
}

}  // namespace

MirroredStrategy::MirroredStrategy(Session& session, std::vector<device::Device> devices,
                                   const StrategyOptions& options)
    : Strategy(session, devices, group_of_threads(session, devices, options.route),
               allreduce::make_in_process_group(1).front(), options) {}

}  // namespace lockstep::strategy
