#include "lockstep/strategy/strategies.h"

#include <fmt/format.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/allreduce/groups.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/directory.h"
#include "lockstep/checkpoint/files.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/job/session.h"

namespace lockstep::strategy {
namespace {

constexpr const char* kKey = "allreduce_route";

// Empty if there is none. An unreadable checkpoint is reported later, by the restore.
std::string read_route(const std::filesystem::path& directory) {
  try {
    for (const checkpoint::CheckpointInfo& info : checkpoint::list_checkpoints(directory)) {
      if (!info.complete()) continue;
      const std::filesystem::path file = info.path / checkpoint::kStateFile;
      return checkpoint::parse_training_state(checkpoint::read_small_file(file), file.string())
          .configuration->value(kKey, std::string());
    }
  } catch (const Error&) {
  }
  return "";
}

}  // namespace

void remember_route(nlohmann::json& configuration, allreduce::Route route) {
  if (route != allreduce::Route::automatic) configuration[kKey] = to_string(route);
}

std::optional<allreduce::Route> remembered_route(const job::Session& session, const std::filesystem::path& directory) {
  if (directory.empty()) return std::nullopt;
  const std::string name = session.all_gather(session.is_chief() ? read_route(directory) : std::string()).front();
  if (name.empty()) return std::nullopt;
  return allreduce::parse_route(name);
}

namespace {

std::vector<allreduce::Communicator> group_of_one(const job::Session& session, device::Device device,
                                                  allreduce::Route route) {
  if (session.size() > 1)
    throw Error(ErrorCategory::input, "strategy",
                "expected a job of one rank for one-device (use multi-worker-mirrored)",
                fmt::format("this job has {} ranks", session.size()));
  return allreduce::make_device_group(session.ranks(), {device}, route);
}

}  // namespace

OneDeviceStrategy::OneDeviceStrategy(job::Session& session, device::Device device, const StrategyOptions& options)
    : Strategy(session, {device}, group_of_one(session, device, options.route),
               allreduce::make_in_process_group(1).front(), options) {}

namespace {

std::vector<allreduce::Communicator> group_of_threads(const job::Session& session,
                                                      const std::vector<device::Device>& devices,
                                                      allreduce::Route route) {
  if (session.size() > 1)
    throw Error(ErrorCategory::input, "strategy", "expected a job of one rank for mirrored (use multi-worker-mirrored)",
                fmt::format("this job has {} ranks", session.size()));
  if (devices.empty())
    throw Error(ErrorCategory::input, "strategy", "expected at least one device for mirrored", "got an empty list");
  return allreduce::make_device_group(session.ranks(), devices, route);
}

}  // namespace

MirroredStrategy::MirroredStrategy(job::Session& session, std::vector<device::Device> devices,
                                   const StrategyOptions& options)
    : Strategy(session, devices, group_of_threads(session, devices, options.route),
               allreduce::make_in_process_group(1).front(), options) {}

namespace {

constexpr const char* kSetUp = "the set-up of the replicas";  // for the watchdog

allreduce::Communicator one_member_a_rank(const job::Session& session) {
  const allreduce::CollectiveScope scope(&session.activity(), kSetUp);
  if (session.ranks() == MPI_COMM_NULL) return allreduce::make_in_process_group(1).front();
  return allreduce::make_mpi_group(session.ranks(), allreduce::Route::mpi);
}

bool is_any_on_gpu(const std::vector<device::Device>& devices) {
  return std::ranges::find(devices, device::DeviceKind::gpu, &device::Device::kind) != devices.end();
}

std::vector<allreduce::Communicator> group_of_ranks(const job::Session& session,
                                                    const std::vector<device::Device>& devices, allreduce::Route route,
                                                    bool share_gpus) {
  const allreduce::CollectiveScope scope(&session.activity(), kSetUp);
  job::check_tf_config(session);
  if (devices.empty())
    throw Error(ErrorCategory::input, "strategy", "expected at least one device per rank for multi-worker-mirrored",
                "got an empty list");
  return allreduce::make_device_group(session.ranks(), devices, route, share_gpus);
}

// Between GPUs the route depends only on their placement; there is nothing to measure.
allreduce::Selection select(const job::Session& session, const std::vector<device::Device>& devices,
                            const StrategyOptions& options) {
  const allreduce::CollectiveScope scope(&session.activity(), kSetUp);
  if (session.size() == 1) return {};
  if (options.route != allreduce::Route::automatic) return {options.route, "as requested"};
  const std::vector<std::string> all = session.all_gather(is_any_on_gpu(devices) ? "gpu" : "cpu");
  if (std::ranges::find(all, "gpu") != all.end())
    return {allreduce::Route::automatic, fmt::format("GPUs of {} ranks", session.size())};
  return allreduce::select_route(session.ranks(), options.remembered_route);
}

}  // namespace

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(job::Session& session, std::vector<device::Device> devices,
                                                         const StrategyOptions& options)
    : MultiWorkerMirroredStrategy(session, devices, options, select(session, devices, options)) {}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(job::Session& session, std::vector<device::Device> devices,
                                                         const StrategyOptions& options, allreduce::Selection selection)
    : Strategy(session, devices, group_of_ranks(session, devices, selection.route, options.share_gpus),
               one_member_a_rank(session), options),
      selection_(std::move(selection)) {}

namespace {

using allreduce::Route;

std::string_view choose(const job::Session& session, std::size_t devices) {
  if (session.size() > 1) return "multi-worker-mirrored";
  return devices > 1 ? "mirrored" : "one-device";
}

void check_route(const job::Session& session, const std::vector<device::Device>& devices, Route route) {
  if (route == Route::nccl) allreduce::require_nccl(devices);
  if (route == Route::staged) allreduce::require_gpus(route, devices);
  const bool serves_a_process =
      route == Route::automatic || route == Route::in_process || route == Route::nccl || route == Route::staged;
  if (route == Route::in_process && session.size() > 1)
    throw Error(ErrorCategory::input, "allreduce", "expected all replicas in one process for in-process (use auto)",
                fmt::format("this job has {} ranks", session.size()));
  if (!serves_a_process && session.ranks() == MPI_COMM_NULL)
    throw Error(ErrorCategory::input, "allreduce",
                fmt::format("expected ranks started by mpirun for {}", to_string(route)),
                "this process was started alone");
}

}  // namespace

std::unique_ptr<Strategy> make_strategy(job::Session& session, std::string_view name,
                                        std::vector<device::Device> devices, const StrategyOptions& options) {
  check_route(session, devices, options.route);
  if (!(options.stall_timeout >= 0))
    throw Error(ErrorCategory::input, "--stall-timeout", "expected a number of seconds, or 0 for no timeout",
                fmt::format("got {}", options.stall_timeout));
  const std::string_view chosen = name == "auto" ? choose(session, devices.size()) : name;
  if (chosen == "multi-worker-mirrored")
    return std::make_unique<MultiWorkerMirroredStrategy>(session, std::move(devices), options);
  job::check_tf_config(session);
  if (chosen == "mirrored") return std::make_unique<MirroredStrategy>(session, std::move(devices), options);
  if (chosen != "one-device")
    throw Error(ErrorCategory::input, "strategy", "expected auto, one-device, mirrored or multi-worker-mirrored",
                fmt::format("got \"{}\"", name));
  if (devices.size() != 1)
    throw Error(ErrorCategory::input, "strategy",
                "expected exactly one device for one-device (use mirrored for several)",
                fmt::format("got {} devices", devices.size()));
  return std::make_unique<OneDeviceStrategy>(session, devices.front(), options);
}

}  // namespace lockstep::strategy
