#include "strategy/workers.h"

#include <fmt/format.h>

#include "allreduce/device_groups.h"
#include "allreduce/selection.h"
#include "device/error.h"
#include "strategy/session.h"
#include "strategy/tf_config.h"

namespace lockstep::strategy {
namespace {

// Between GPUs the route follows from where they are; there is nothing to measure.
allreduce::Selection select(const Session& session, const WorkersOptions& options) {
  check_tf_config(session);
  if (session.size() == 1) return {};
  if (options.route != allreduce::Route::automatic) return {options.route, "as asked for"};
  if (options.device.kind == device::DeviceKind::gpu)
    return {allreduce::Route::automatic, fmt::format("GPUs of {} ranks", session.size())};
  return allreduce::select_route(session.ranks());
}

allreduce::Communicator make_group(const Session& session, const WorkersOptions& options, std::string& reason) {
  const allreduce::CollectiveScope scope(&session.activity(), "the set-up of the ranks");
  const allreduce::Selection selection = select(session, options);
  reason = selection.reason;
  return allreduce::make_device_group(session.ranks(), {options.device}, selection.route, options.share_gpus).front();
}

}  // namespace

Workers::Workers(Session& session, const WorkersOptions& options)
    : session_(session),
      device_(options.device),
      activity_(session.shared_activity()),
      group_(make_group(session, options, reason_).watched_by(activity_)),
      is_watched_(true) {
  activity_->set_phase(allreduce::Phase::idle);
  session.watch({activity_},
                {.stall_timeout = options.stall_timeout, .advice = "start it again from what it saved last"});
}

Workers::Workers(Session& session, const allreduce::Communicator& group, device::Device device)
    : session_(session),
      device_(device),
      activity_(std::make_shared<allreduce::Activity>()),
      group_(group.watched_by(activity_)) {}

Workers::~Workers() {
  if (is_watched_) session_.watch_process(allreduce::Phase::idle);
}

std::string Workers::route() const {
  return reason_.empty() ? group_.route() : fmt::format("{} ({})", group_.route(), reason_);
}

void Workers::barrier() {
  settle();
  group_.barrier();
}

bool Workers::any(bool mine) {
  settle();
  return group_.any(mine);
}

void Workers::broadcast_bytes(std::span<std::byte> values, int root) {
  settle();
  if (root < 0 || root >= size()) {
    const Error error(ErrorCategory::input, "broadcast", fmt::format("needed a root from 0 to {}", size() - 1),
                      fmt::format("got {}", root));
    group_.abort(error.what());  // the others may have a root that can be
    throw error;
  }
  group_.broadcast(values, root);
}

std::vector<std::vector<std::byte>> Workers::gather_bytes(std::span<const std::byte> values) {
  settle();
  return group_.all_gather(values);
}

}  // namespace lockstep::strategy
