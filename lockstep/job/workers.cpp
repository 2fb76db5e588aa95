#include "lockstep/job/workers.h"

#include <fmt/format.h>

#include "lockstep/allreduce/communication_thread.h"
#include "lockstep/base/error.h"

namespace lockstep::job {

namespace {

device::Device checked_device(const Session& session, device::Device device) {
  check_tf_config(session);
  return device;
}

}  // namespace

Workers::Workers(Session& session, const WorkersOptions& options)
    : world_(session, {checked_device(session, options.device)},
             {.route = options.route, .remembered_route = {}, .share_gpus = options.share_gpus}),
      lane_(std::make_shared<allreduce::CommunicationThread>()) {
  world_.watch(options.stall_timeout, "restart it from its last saved state");
}

Workers::Workers(Session& session, const allreduce::Communicator& group, device::Device device)
    : world_(session, {device}, {group}, group),
      lane_(std::make_shared<allreduce::CommunicationThread>()) {}

Workers::~Workers() = default;

std::string Workers::route() const {
  const std::string& reason = world_.selection().reason;
  return reason.empty() ? group().route() : fmt::format("{} ({})", group().route(), reason);
}

void Workers::wait_pending() { lane_->wait(); }

void Workers::barrier() {
  wait_pending();
  group().barrier();
}

bool Workers::any(bool mine) {
  wait_pending();
  return group().any(mine);
}

void Workers::broadcast_bytes(std::span<std::byte> values, int root) {
  wait_pending();
  if (root < 0 || root >= size()) {
    const Error error(ErrorCategory::input, "broadcast",
                      fmt::format("expected a root from 0 to {}", size() - 1),
                      fmt::format("got {}", root));
    group().abort(error.what());  // the others may have a valid root
    throw error;
  }
  group().broadcast(values, root);
}

std::vector<std::vector<std::byte>> Workers::gather_bytes(std::span<const std::byte> values) {
  wait_pending();
  return group().all_gather(values);
}

Workers& Session::workers() {
  if (!workers_) workers_ = std::make_unique<Workers>(*this, workers_options_);
  return static_cast<Workers&>(*workers_);
}

}  // namespace lockstep::job
