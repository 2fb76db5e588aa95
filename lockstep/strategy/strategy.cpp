#include "lockstep/strategy/strategy.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/job/agreement.h"
#include "lockstep/job/failure.h"
#include "lockstep/job/operator_settings.h"
#include "lockstep/job/placement/device_share.h"
#include "lockstep/job/placement/traffic_interface.h"
#include "lockstep/strategy/replica_threads.h"
#include "lockstep/strategy/trainer_options.h"

namespace lockstep::inline v0::strategy {

Strategy::Strategy(job::Session& session, std::vector<device::Device> devices,
                   const StrategyOptions& options)
    : world_(session, std::move(devices),
             {.route = options.route,
              .remembered_route = options.remembered_route,
              .share_gpus = options.share_gpus}) {
  start(options);
}

Strategy::Strategy(job::Session& session, std::vector<device::Device> devices,
                   std::vector<allreduce::Communicator> groups, allreduce::Communicator ranks,
                   const StrategyOptions& options)
    : world_(session, std::move(devices), std::move(groups), std::move(ranks)) {
  start(options);
}

void Strategy::start(const StrategyOptions& options) {
  session().reset_failure();
  if (session().is_chief())
    for (const std::string& name : session().settings().of_wrapped_loops())
      session().logger()->warn(fmt::format(
          "{} has no effect here: only programs that wrap a loop of their own use it", name));
  const int cores = std::max(1, job::share_of_cores(session()) / local_replicas());
  threads_ = std::make_unique<ReplicaThreads>(
      local_replicas(), cores,
      [this](int local, const std::string& reason) { group(local).abort(reason); });
  gather_placements(cores);
  world_.watch(
      options.stall_timeout,
      "the same command resumes from the last checkpoint, if the run had a --checkpoint-dir");
}

Strategy::~Strategy() = default;

TrainerOptions Strategy::adapted(TrainerOptions options) const {
  if (options.local.steps || options.local.outer != OuterStep{})
    throw Error(ErrorCategory::input, "local-steps", "expected the strategy local-steps",
                fmt::format("got {}", name()));
  return options;
}

void Strategy::require_usable() const {
  if (failure_)
    throw Error(ErrorCategory::input, "strategy",
                "expected a new strategy after an error, which ends the group of all replicas",
                fmt::format("got one that has failed: {}", *failure_));
}

void Strategy::run(const std::function<void(int local)>& body) {
  require_usable();
  try {
    threads_->run(body);
  } catch (...) {
    failure_ = job::describe_current_exception().message;
    throw;
  }
}

void Strategy::fail_together(const std::function<void()>& body) {
  require_usable();
  try {
    body();
  } catch (...) {
    const job::Failure failure = job::describe_current_exception();
    failure_ = failure.message;
    world_.abort(failure.message);
    session().report(failure);
    throw;
  }
}

bool Strategy::has_gpu() const {
  return std::ranges::any_of(world_.devices(), [](device::Device device) {
    return device.kind == device::DeviceKind::gpu;
  });
}

void Strategy::gather_placements(int cores) {
  const std::string interface = job::traffic_interface(session());
  std::vector<job::Placement> mine;
  for (int local = 0; local < local_replicas(); ++local) {
    job::Placement& place = mine.emplace_back(job::describe_place(device(local)));
    place.replica = group(local).rank();
    place.rank = session().rank();
    place.local_rank = session().local_rank();
    place.node = session().node();
    place.cores = cores;
    place.interface = interface;
  }
  for (std::vector<job::Placement>& places :
       job::Agreement(session()).gather_values("placements", mine))
    std::ranges::move(places, std::back_inserter(placements_));
}

}  // namespace lockstep::inline v0::strategy

namespace lockstep::inline v0 {

using StrategyFields = Fields<strategy::StrategyOptions>;

std::vector<std::string> StrategyFields::print_route(const Options& options) {
  return {to_string(options.route)};
}

void StrategyFields::parse_route(Options& options, std::string_view /*name*/,
                                 std::span<const std::string> values) {
  options.route = allreduce::parse_route(values.back());
}

std::string StrategyFields::describe_routes() {
  return allreduce::describe_routes([](const allreduce::RouteInfo&) { return true; });
}

}  // namespace lockstep::inline v0
