#include "lockstep/job/workers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/logger.h>

#include <chrono>
#include <future>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/allreduce/communication_thread.h"
#include "lockstep/allreduce/groups/groups.h"
#include "lockstep/allreduce/groups/ranks.h"
#include "lockstep/allreduce/groups/selection.h"
#include "lockstep/allreduce/member/group_member.h"
#include "lockstep/base/error.h"
#include "lockstep/job/agreement.h"
#include "lockstep/job/operator_settings.h"
#include "lockstep/job/tracing.h"

namespace lockstep::inline v0::job {

namespace {

/// Groups that one group makes, so that the numbers of all groups differ.
constexpr std::uint32_t kLargestCount = 1 << 16;

/// An operation on the communication thread. It does not run if an earlier one failed: then its
/// promise is broken, and the thread has the failure.
class Submitted final : public allreduce::PendingOperation {
 public:
  Submitted(std::shared_ptr<allreduce::CommunicationThread> lane, std::future<void> done)
      : lane_(std::move(lane)), done_(done.share()) {}

  void wait() override {
    try {
      done_.get();
    } catch (const std::future_error&) {
      lane_->wait();
      throw;
    }
  }
  bool test() override {
    if (done_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
    wait();
    return true;
  }
  void wait(device::Stream& /*stream*/) override { wait(); }

 private:
  std::shared_ptr<allreduce::CommunicationThread> lane_;
  std::shared_future<void> done_;
};

/// The program's options, as the operator overrides them.
WorkersOptions overridden(const Session& session, WorkersOptions options) {
  const OperatorSettings& settings = session.settings();
  if (!settings.allreduce.empty()) options.route = allreduce::parse_route(settings.allreduce);
  return options;
}

device::Device checked_device(const Session& session, device::Device device) {
  check_tf_config(session);
  return device;
}

}  // namespace

Workers::Workers(Session& session, const WorkersOptions& options)
    : options_(overridden(session, options)),
      world_(session, {checked_device(session, options.device)},
             {.route = options_.route, .remembered_route = {}, .share_gpus = options.share_gpus}),
      lane_(std::make_shared<allreduce::CommunicationThread>()) {
  world_.watch(options.stall_timeout, "restart it from its last saved state");
  const TraceOptions& trace = session.settings().trace;
  if (trace.file.empty()) return;
  tracing_ = std::make_unique<Tracing>(session, world_.ranks(),
                                       options_.device.kind == device::DeviceKind::gpu, trace);
  tracing_->begin();
}

Workers::Workers(Session& session, const allreduce::Communicator& group, device::Device device)
    : options_{.device = device},
      world_(session, {device}, {group}, group),
      lane_(std::make_shared<allreduce::CommunicationThread>()) {}

Workers::Workers(const Workers& parent, std::shared_ptr<allreduce::Activity> activity,
                 const allreduce::Communicator& group, const allreduce::Communicator& ranks)
    : options_(parent.options_),
      world_(parent.session(), {options_.device}, {group}, ranks, activity),
      lane_(parent.lane_),
      in_group_(std::move(activity)) {
  session().watch_group(in_group_);
}

Workers::~Workers() {
  if (in_group_) session().end_group(in_group_);
  if (!tracing_) return;
  if (std::uncaught_exceptions() > exceptions_) {
    tracing_->fail();
    return;
  }
  try {
    wait_pending();
    tracing_->finish();
  } catch (const std::exception& error) {
    session().logger()->warn(fmt::format("the trace is lost: {}", error.what()));
  }
}

void Workers::begin_step(std::int64_t step) {
  if (!tracing_) return;
  wait_pending();
  tracing_->before_step(step);
}

void Workers::end_step(std::int64_t step) {
  if (tracing_) tracing_->after_step(step);
}

std::unique_ptr<Workers> Workers::make_group(std::span<const int> members) {
  wait_pending();
  Agreement(group()).require_same("make_group", "members",
                                  fmt::format("{}", fmt::join(members, ", ")));
  const std::set<int> distinct(members.begin(), members.end());
  if (members.empty() || distinct.size() < members.size() || *distinct.begin() < 0 ||
      *distinct.rbegin() >= size())
    throw Error(
        ErrorCategory::input, "make_group",
        fmt::format("expected different ranks from 0 to {}", size() - 1),
        fmt::format("got {}",
                    members.empty() ? "none" : fmt::format("{}", fmt::join(members, ", "))));
  const allreduce::RankGroup whole = in_group_ ? in_group_->group() : allreduce::RankGroup();
  allreduce::RankGroup part{.number = whole.number * kLargestCount + ++groups_made_};
  for (const int member : members)
    part.members.push_back(in_group_ ? whole.members[static_cast<std::size_t>(member)] : member);
  std::optional<allreduce::Communicator> ranks = allreduce::make_subset(world_.ranks(), members);
  if (!ranks) return nullptr;
  allreduce::Route route = options_.route;
  // Between GPUs there is nothing to measure.
  if (route == allreduce::Route::automatic && options_.device.kind == device::DeviceKind::cpu &&
      ranks->size() > 1)
    route = allreduce::select_route(*ranks, std::nullopt).route;
  const std::vector<allreduce::Communicator> replicas =
      allreduce::make_device_group(*ranks, {options_.device}, route, options_.share_gpus);
  return std::unique_ptr<Workers>(new Workers(
      *this, std::make_shared<allreduce::Activity>(std::move(part)), replicas.front(), *ranks));
}

allreduce::Request Workers::submit(std::function<void(const allreduce::Communicator&)> operation) {
  auto promise = std::make_shared<std::promise<void>>();
  auto pending = std::make_unique<Submitted>(lane_, promise->get_future());
  lane_->submit([promise = std::move(promise), operation = std::move(operation), group = group()] {
    try {
      operation(group);
      promise->set_value();
    } catch (const Error& error) {
      promise->set_exception(std::current_exception());
      if (error.category() != ErrorCategory::input) throw;
    } catch (...) {
      promise->set_exception(std::current_exception());
      throw;
    }
  });
  return allreduce::Request(std::move(pending));
}

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
  if (!workers_) {
    auto workers = std::make_unique<Workers>(*this, workers_options_);
    set_group(workers->group());
    workers_ = std::move(workers);
  }
  return static_cast<Workers&>(*workers_);
}

}  // namespace lockstep::inline v0::job
