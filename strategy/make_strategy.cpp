#include "strategy/make_strategy.h"

#include <fmt/format.h>

#include "allreduce/device_groups.h"
#include "device/error.h"
#include "strategy/mirrored_strategy.h"
#include "strategy/multi_worker_mirrored_strategy.h"
#include "strategy/one_device_strategy.h"
#include "strategy/tf_config.h"

namespace lockstep::strategy {
namespace {

using allreduce::Route;

std::string_view choose(const Session& session, std::size_t devices) {
  if (session.size() > 1) return "multi-worker-mirrored";
  return devices > 1 ? "mirrored" : "one-device";
}

void check_route(const Session& session, const std::vector<device::Device>& devices, Route route) {
  if (route == Route::nccl) allreduce::require_nccl(devices);
  if (route == Route::staged) allreduce::require_gpus(route, devices);
  const bool serves_a_process =
      route == Route::automatic || route == Route::in_process || route == Route::nccl || route == Route::staged;
  if (route == Route::in_process && session.size() > 1)
    throw Error(ErrorCategory::input, "allreduce", "in-process needs all replicas in one process; use auto",
                fmt::format("this job has {} ranks", session.size()));
  if (!serves_a_process && session.ranks() == MPI_COMM_NULL)
    throw Error(ErrorCategory::input, "allreduce", fmt::format("{} needs ranks started by mpirun", to_string(route)),
                "this process was started alone");
}

}  // namespace

std::unique_ptr<Strategy> make_strategy(Session& session, std::string_view name, std::vector<device::Device> devices,
                                        const StrategyOptions& options) {
  check_route(session, devices, options.route);
  if (!(options.stall_timeout >= 0))
    throw Error(ErrorCategory::input, "--stall-timeout", "needed seconds, or 0 for none",
                fmt::format("got {}", options.stall_timeout));
  const std::string_view chosen = name == "auto" ? choose(session, devices.size()) : name;
  if (chosen == "multi-worker-mirrored")
    return std::make_unique<MultiWorkerMirroredStrategy>(session, std::move(devices), options);
  check_tf_config(session);
  if (chosen == "mirrored") return std::make_unique<MirroredStrategy>(session, std::move(devices), options);
  if (chosen != "one-device")
    throw Error(ErrorCategory::input, "strategy", "needed auto, one-device, mirrored or multi-worker-mirrored",
                fmt::format("got \"{}\"", name));
  if (devices.size() != 1)
    throw Error(ErrorCategory::input, "strategy", "one-device needs exactly one device; use mirrored for several",
                fmt::format("got {} devices", devices.size()));
  return std::make_unique<OneDeviceStrategy>(session, devices.front(), options);
}

}  // namespace lockstep::strategy
