#include "strategy/strategy.h"

#include <algorithm>

#include "device/error.h"
#include "strategy/core_share.h"
#include "strategy/traffic_interface.h"

namespace lockstep::strategy {

Strategy::Strategy(Session& session, std::vector<device::Device> devices, std::vector<allreduce::Communicator> groups,
                   allreduce::Communicator ranks, const StrategyOptions& options)
    : session_(session),
      devices_(std::move(devices)),
      groups_(std::move(groups)),
      ranks_(std::move(ranks)),
      cores_per_replica_(std::max(1, share_of_cores(session) / static_cast<int>(devices_.size()))),
      threads_(static_cast<int>(devices_.size()), cores_per_replica_, [this](int local, const std::string& reason) {
        groups_[static_cast<std::size_t>(local)].abort(reason);
      }) {
  LOCKSTEP_CHECK_OP(devices_.size(), ==, groups_.size());
  gather_placements(cores_per_replica_);
  watch(options);
}

void Strategy::watch(const StrategyOptions& options) {
  std::vector<const allreduce::Activity*> watched;
  for (allreduce::Communicator& group : groups_) {
    activities_.push_back(std::make_shared<allreduce::Activity>());
    watched.push_back(activities_.back().get());
    group = group.watched_by(activities_.back());
  }
  ranks_ = ranks_.watched_by(activities_.front());
  const allreduce::WatchdogOptions watchdog{
      .stall_timeout = options.stall_timeout,
      .advice = "the same command goes on from the last checkpoint, if the run had a --checkpoint-dir"};
  if (session_.ranks() == MPI_COMM_NULL)
    watchdog_ = std::make_unique<allreduce::Watchdog>(watched, watchdog);
  else
    watchdog_ = std::make_unique<allreduce::Watchdog>(session_.ranks(), watched, watchdog);
}

bool Strategy::has_gpu() const {
  return std::ranges::any_of(devices_, [](device::Device device) { return device.kind == device::DeviceKind::gpu; });
}

void Strategy::gather_placements(int cores) {
  const std::string interface = traffic_interface(session_);
  std::vector<Placement> mine;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    Placement& place = mine.emplace_back(describe_place(devices_[i]));
    place.replica = groups_[i].rank();
    place.rank = session_.rank();
    place.local_rank = session_.local_rank();
    place.node = session_.node();
    place.cores = cores;
    place.interface = interface;
  }
  for (const std::string& text : session_.all_gather(to_text(mine)))
    for (Placement& place : parse_placements(text)) placements_.push_back(std::move(place));
}

}  // namespace lockstep::strategy
