#include "lockstep/strategy/strategy.h"

#include <algorithm>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/job/agreement.h"
#include "lockstep/job/device_share.h"
#include "lockstep/job/failure.h"
#include "lockstep/job/traffic_interface.h"

namespace lockstep::strategy {

Strategy::Strategy(job::Session& session, std::vector<device::Device> devices,
                   std::vector<allreduce::Communicator> groups, allreduce::Communicator ranks,
                   const StrategyOptions& options)
    : session_(session),
      devices_(std::move(devices)),
      groups_(std::move(groups)),
      ranks_(std::move(ranks)),
      cores_per_replica_(std::max(1, job::share_of_cores(session) / static_cast<int>(devices_.size()))),
      threads_(static_cast<int>(devices_.size()), cores_per_replica_, [this](int local, const std::string& reason) {
        groups_[static_cast<std::size_t>(local)].abort(reason);
      }) {
  LOCKSTEP_CHECK_OP(devices_.size(), ==, groups_.size());
  gather_placements(cores_per_replica_);
  watch(options);
}

void Strategy::watch(const StrategyOptions& options) {
  // Replica 0 represents its process, whose activity the watchdog already watches.
  session_.activity().set_phase(allreduce::Phase::idle);
  // Starting the watchdog is the next collective.
  const std::uint64_t collectives = session_.activity().state().entered + 1;
  for (allreduce::Communicator& group : groups_) {
    activities_.push_back(activities_.empty() ? session_.shared_activity()
                                              : std::make_shared<allreduce::Activity>(collectives));
    group = group.watched_by(activities_.back());
  }
  ranks_ = ranks_.watched_by(activities_.front());
  const allreduce::WatchdogOptions watchdog{
      .stall_timeout = options.stall_timeout,
      .advice = "the same command resumes from the last checkpoint, if the run had a --checkpoint-dir"};
  session_.watch(activities_, watchdog);
}

Strategy::~Strategy() { session_.watch_process(allreduce::Phase::idle); }

void Strategy::fail_together(const std::function<void()>& body) {
  try {
    body();
  } catch (...) {
    const job::Failure failure = job::describe_current_exception();
    for (const allreduce::Communicator& group : groups_) group.abort(failure.message);
    ranks_.abort(failure.message);
    session_.report(failure);
    throw;
  }
}

bool Strategy::has_gpu() const {
  return std::ranges::any_of(devices_, [](device::Device device) { return device.kind == device::DeviceKind::gpu; });
}

void Strategy::gather_placements(int cores) {
  const std::string interface = job::traffic_interface(session_);
  std::vector<job::Placement> mine;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    job::Placement& place = mine.emplace_back(job::describe_place(devices_[i]));
    place.replica = groups_[i].rank();
    place.rank = session_.rank();
    place.local_rank = session_.local_rank();
    place.node = session_.node();
    place.cores = cores;
    place.interface = interface;
  }
  for (std::vector<job::Placement>& places : job::Agreement(session_).gather_values("placements", mine))
    std::ranges::move(places, std::back_inserter(placements_));
}

}  // namespace lockstep::strategy
