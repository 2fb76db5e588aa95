#include "lockstep/job/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/allreduce/groups/groups.h"
#include "lockstep/allreduce/groups/selection.h"
#include "lockstep/allreduce/watchdog/watchdog.h"
#include "lockstep/base/error.h"
#include "lockstep/job/agreement.h"
#include "lockstep/job/launch/cluster.h"
#include "lockstep/job/session.h"

namespace lockstep::inline v0::job {
namespace {

constexpr const char* kSetUp = "the set-up of the replicas";  // for the watchdog

bool is_any_on_gpu(const std::vector<device::Device>& devices) {
  return std::ranges::find(devices, device::DeviceKind::gpu, &device::Device::kind) !=
         devices.end();
}

}  // namespace

void check_tf_config(const Session& session) {
  std::string problem;
  try {
    if (const auto cluster = Cluster::from_environment())
      cluster->check_against_mpi(session.rank(), session.size());
  } catch (const Error& error) {
    problem = error.what();
  }
  const std::vector<std::string> problems = session.all_gather(problem);
  for (std::size_t rank = 0; rank < problems.size(); ++rank)
    if (!problems[rank].empty())
      throw Error(ErrorCategory::input, "strategy",
                  "expected a TF_CONFIG that agrees with the launcher on every rank, or none",
                  fmt::format("rank {}: {}", rank, problems[rank]));
}

namespace {

allreduce::Selection select(const Session& session, const std::vector<device::Device>& devices,
                            const WorldOptions& options) {
  if (session.size() == 1) return {};
  // Before the first collective that depends on them.
  Agreement(session).require_same_lines(
      "ranks", fmt::format("all-reduce route: {}\nsharing of GPUs: {}\n", to_string(options.route),
                           options.share_gpus ? "yes" : "no"));
  const allreduce::CollectiveScope scope = session.enter(kSetUp);
  if (options.route != allreduce::Route::automatic) return {options.route, "as requested"};
  // Between GPUs the route depends on their placement and on NCCL; there is nothing to measure.
  const std::vector<std::string> all = session.all_gather(is_any_on_gpu(devices) ? "gpu" : "cpu");
  if (std::ranges::find(all, "gpu") != all.end())
    return {allreduce::Route::automatic, fmt::format("GPUs of {} ranks", session.size())};
  return allreduce::select_route(session.ranks(), options.remembered_route);
}

std::vector<allreduce::Communicator> make_groups(const Session& session,
                                                 const std::vector<device::Device>& devices,
                                                 allreduce::Selection& selection,
                                                 const WorldOptions& options) {
  const allreduce::CollectiveScope scope = session.enter(kSetUp);
  const allreduce::Route route = session.size() == 1 ? options.route : selection.route;
  std::string reason;
  std::vector<allreduce::Communicator> groups =
      allreduce::make_device_group(session.ranks(), devices, route, options.share_gpus, &reason);
  if (!reason.empty()) selection.reason += "; " + reason;
  return groups;
}

allreduce::Communicator make_rank_group(const Session& session) {
  const allreduce::CollectiveScope scope = session.enter(kSetUp);
  return allreduce::make_rank_group(session.ranks(), allreduce::Route::ring);
}

}  // namespace

World::World(Session& session, std::vector<device::Device> devices, const WorldOptions& options)
    : session_(session),
      devices_(std::move(devices)),
      selection_(select(session, devices_, options)),
      groups_(make_groups(session, devices_, selection_, options)),
      ranks_(make_rank_group(session)) {
  LOCKSTEP_CHECK_OP(devices_.size(), ==, groups_.size());
}

World::World(Session& session, std::vector<device::Device> devices,
             std::vector<allreduce::Communicator> groups, allreduce::Communicator ranks,
             std::shared_ptr<allreduce::Activity> activity)
    : session_(session),
      devices_(std::move(devices)),
      groups_(std::move(groups)),
      ranks_(std::move(ranks)) {
  LOCKSTEP_CHECK_OP(devices_.size(), ==, groups_.size());
  std::vector<std::shared_ptr<allreduce::Activity>> activities;
  if (activity) activities.push_back(std::move(activity));
  while (activities.size() < devices_.size())
    activities.push_back(std::make_shared<allreduce::Activity>());
  record_in(std::move(activities));
}

void World::record_in(std::vector<std::shared_ptr<allreduce::Activity>> activities) {
  activities_ = std::move(activities);
  for (std::size_t i = 0; i < groups_.size(); ++i)
    groups_[i] = groups_[i].watched_by(activities_[i]);
  ranks_ = ranks_.watched_by(activities_.front(), {activities_.begin() + 1, activities_.end()});
}

void World::watch(double stall_timeout, std::string advice) {
  // Replica 0 represents its process, whose activity the watchdog already watches.
  session_.activity().set_phase(allreduce::Phase::idle);
  // Starting the watchdog is the next collective.
  const std::uint64_t collectives = session_.activity().state().entered + 1;
  std::vector<std::shared_ptr<allreduce::Activity>> activities{session_.shared_activity()};
  while (activities.size() < devices_.size())
    activities.push_back(std::make_shared<allreduce::Activity>(collectives));
  record_in(std::move(activities));
  watch_ =
      session_.watch(activities_, {.stall_timeout = stall_timeout, .advice = std::move(advice)});
}

World::~World() {
  if (watch_) session_.end_watch(*watch_);
}

void World::abort(const std::string& reason) const {
  for (const allreduce::Communicator& group : groups_) group.abort(reason);
  ranks_.abort(reason);
}

}  // namespace lockstep::inline v0::job
