#include "strategy/one_device_strategy.h"

#include <fmt/format.h>

#include "allreduce/device_groups.h"
#include "allreduce/groups.h"
#include "device/error.h"

namespace lockstep::strategy {
namespace {

std::vector<allreduce::Communicator> group_of_one(const Session& session, device::Device device,
                                                  allreduce::Route route) {
  if (session.size() > 1)
    throw Error(ErrorCategory::input, "strategy", "one-device needs a job of one rank; use multi-worker-mirrored",
                fmt::format("this job has {} ranks", session.size()));
  return allreduce::make_device_group(session.ranks(), {device}, route);
}

}  // namespace

OneDeviceStrategy::OneDeviceStrategy(Session& session, device::Device device, const StrategyOptions& options)
    : Strategy(session, {device}, group_of_one(session, device, options.route),
               allreduce::make_in_process_group(1).front(), options) {}

}  // namespace lockstep::strategy
