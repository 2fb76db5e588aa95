#include "lockstep/allreduce/watchdog/watchdog.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "lockstep/allreduce/transport/job_texts.h"
#include "lockstep/allreduce/watchdog/connect.h"
#include "lockstep/allreduce/watchdog/final_message.h"
#include "lockstep/allreduce/watchdog/progress.h"
#include "lockstep/allreduce/watchdog/rendezvous.h"
#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/system/process.h"
#include "lockstep/base/terminal.h"
#include "lockstep/base/trace/recording.h"

namespace lockstep::inline v0::allreduce {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMessageLimit{
    1000};  // limit for one message to the user or to the other ranks
constexpr milliseconds kHoldsReport{
    2000};                         // longer than the delay between findings of ranks of a host
constexpr double kSuspension = 2;  // seconds; a shorter pause means a busy machine
constexpr double kSecondsAfterSuspension =
    5;  // time in which a finding may be a consequence of a suspension

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

WatchdogOptions complete(WatchdogOptions options) {
  if (!(options.stall_timeout >= 0) || !std::isfinite(options.stall_timeout))
    throw Error(ErrorCategory::input, "watchdog",
                "expected a stall timeout of 0 (off) or more seconds",
                fmt::format("got {}", options.stall_timeout));
  if (options.heartbeat <= 0) options.heartbeat = std::clamp(options.stall_timeout / 5, 0.02, 1.0);
  if (options.host.empty()) options.host = host_name();
  return options;
}

/// Sets real-time priority for the calling thread if the process has the privilege. The thread
/// sleeps most of the time.
void raise_priority() {
  const sched_param first{.sched_priority = sched_get_priority_min(SCHED_RR)};
  pthread_setschedparam(pthread_self(), SCHED_RR | SCHED_RESET_ON_FORK, &first);
}

/// Non-owning pointers: the caller keeps the replicas alive.
std::vector<std::shared_ptr<const Activity>> unowned(const std::vector<const Activity*>& replicas) {
  std::vector<std::shared_ptr<const Activity>> all;
  for (const Activity* replica : replicas)
    all.emplace_back(std::shared_ptr<const Activity>(), replica);
  return all;
}

}  // namespace

class Watchdog::Thread {
 public:
  Thread(std::unique_ptr<Agent> agent, std::vector<std::shared_ptr<const Activity>> replicas,
         WatchdogOptions options);
  ~Thread();
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  void watch(std::vector<std::shared_ptr<const Activity>> replicas);
  void announce_error();

 private:
  void run() noexcept;
  void watch_until_the_end();
  void wait_until(double time) const;
  std::vector<ReplicaView> observe(double now);
  std::vector<std::string> buckets();
  bool must_print(const Finding& finding);
  std::string text_of(const Finding& finding) const;
  void conclude(const Finding& finding);

  std::unique_ptr<Agent> agent_;
  std::mutex replicas_mutex_;
  std::vector<std::shared_ptr<const Activity>> replicas_;
  std::vector<ActivityAge> ages_;
  WatchdogOptions options_;
  AwakeClock clock_;
  FileDescriptor wake_;
  FileDescriptor reporter_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> error_announced_{false};
  int exceptions_at_start_ = std::uncaught_exceptions();
  bool after_error_ = false;  // written before stopping_
  bool has_recorded_ = false;
  std::thread thread_;
};

Watchdog::Thread::Thread(std::unique_ptr<Agent> agent,
                         std::vector<std::shared_ptr<const Activity>> replicas,
                         WatchdogOptions options)
    : agent_(std::move(agent)),
      replicas_(std::move(replicas)),
      ages_(replicas_.size()),
      options_(std::move(options)),
      // Up to three missed heartbeats are a delay; more mean a suspended process.
      clock_(seconds_now(), 3 * options_.heartbeat),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  // Rank 0 can report a rank as lost only after its first report. On a busy machine the thread may
  // start too late for that.
  if (agent_->rank() != 0) static_cast<void>(agent_->beat(0, observe(0), buckets()));
  thread_ = start_quiet_thread("the watchdog", [this] { run(); });
}

Watchdog::Thread::~Thread() {
  after_error_ = std::uncaught_exceptions() > exceptions_at_start_;
  stopping_.store(true);
  eventfd_write(wake_.get(), 1);
  thread_.join();
}

void Watchdog::Thread::watch(std::vector<std::shared_ptr<const Activity>> replicas) {
  const std::lock_guard lock(replicas_mutex_);
  replicas_ = std::move(replicas);
  ages_.assign(replicas_.size(), {});
}

void Watchdog::Thread::announce_error() {
  error_announced_.store(true);
  eventfd_write(wake_.get(), 1);
}

// A rank without a watchdog counts as lost, so it exits on an error.
void Watchdog::Thread::run() noexcept {
  try {
    raise_priority();
    watch_until_the_end();
  } catch (const std::exception& error) {
    std::array<char, 512> line{};
    const auto end =
        fmt::format_to_n(line.data(), line.size(),
                         "lockstep: error: [watchdog] expected to monitor rank {}, got {}\n",
                         agent_ ? agent_->rank() : 0, printable(error.what()));
    print_error({line.data(), std::min(end.size, line.size())}, kMessageLimit);
    std::_Exit(exit_status(ErrorCategory::communication));
  }
}

void Watchdog::Thread::watch_until_the_end() {
  for (double next_beat = seconds_now();; wait_until(next_beat)) {
    // Read first: a write after the check of its flag then wakes the thread again.
    eventfd_t count = 0;
    eventfd_read(wake_.get(), &count);
    if (error_announced_.exchange(false)) {
      agent_->announce_error(clock_.advance(seconds_now()));
      has_recorded_ = true;  // this rank records its own failure
    }
    if (stopping_.load()) {
      agent_->send_goodbye(after_error_, kMessageLimit);
      break;
    }
    const double real = seconds_now();
    const double now = clock_.advance(real);
    auto finding = agent_->receive(now);
    // Ranks that wait in a collective may be killed before they fail themselves.
    if (!has_recorded_ && agent_->is_ending(now)) {
      has_recorded_ = true;
      trace::write_recording_of_bystander();
    }
    if (!finding && real >= next_beat) {
      finding = agent_->beat(now, observe(now), buckets());
      next_beat = real + options_.heartbeat;
    }
    if (finding && finding->is_warning) {
      print_error(
          fmt::format("{}lockstep: warning: {}\n", message_start(), printable(finding->text)),
          kMessageLimit);
    } else if (finding) {
      conclude(*finding);
      break;
    }
  }
  agent_.reset();
}

void Watchdog::Thread::wait_until(double time) const {
  std::vector<pollfd> interests = {{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
  agent_->add_interests(interests);
  const double left = std::max(0.0, time - seconds_now());
  poll(interests.data(), interests.size(), static_cast<int>(std::ceil(left * 1000)));
}

std::vector<ReplicaView> Watchdog::Thread::observe(double now) {
  const bool made_progress = options_.made_progress && options_.made_progress();
  const std::lock_guard lock(replicas_mutex_);
  std::vector<ActivityState> states;
  for (const auto& replica : replicas_) states.push_back(replica->state());
  // A wait in a collective may use a processor, so it hides whether another thread computes.
  const bool is_at_work =
      made_progress && std::ranges::none_of(states, &ActivityState::in_collective);
  std::vector<ReplicaView> views;
  for (std::size_t i = 0; i < states.size(); ++i) {
    views.push_back(
        ages_[i].update(states[i], now, is_at_work && is_outside_training(states[i].phase)));
    views.back().group = replicas_[i]->group();
  }
  combine_groups(views);
  return views;
}

std::vector<std::string> Watchdog::Thread::buckets() {
  const std::lock_guard lock(replicas_mutex_);
  for (const auto& replica : replicas_)
    if (auto contents = replica->bucket_contents(); !contents.empty()) return contents;
  return {};
}

bool Watchdog::Thread::must_print(const Finding& finding) {
  if (finding.reporter != Finding::Reporter::one_per_host)
    return finding.reporter == Finding::Reporter::this_rank;
  std::this_thread::sleep_for(finding.patience);
  reporter_ = claim_report(finding.job);
  return reporter_.is_open();
}

std::string Watchdog::Thread::text_of(const Finding& finding) const {
  std::string text = finding.text;
  // Other ranks may have reported this rank as lost in the meantime and have exited.
  if (const double suspension = clock_.recent_suspension(kSecondsAfterSuspension);
      suspension >= kSuspension)
    text += fmt::format("; rank {}, host {}, was itself suspended for {:.0f} s until just now",
                        agent_->rank(), options_.host, suspension);
  if (finding.takes_advice && !options_.advice.empty()) text += "; " + options_.advice;
  return text;
}

void Watchdog::Thread::conclude(const Finding& finding) {
  const std::string text = printable(text_of(finding));
  std::future<std::filesystem::path> recording;
  // Started first, because mpirun kills the other ranks a second after one has ended.
  if (!options_.on_failure) recording = trace::start_recording_of_failure(text);
  const WatchdogReport report{.text = text, .prints = must_print(finding)};
  if (report.prints && !options_.on_failure)
    print_error(fmt::format("{}lockstep: error: {}\n", message_start(), text), kMessageLimit);
  agent_->broadcast_failure(finding.text, kMessageLimit);
  if (!options_.on_failure) {
    const std::filesystem::path file = trace::finish_recording(std::move(recording));
    if (report.prints && !file.empty())
      print_error(fmt::format("lockstep: {}\n", trace::recording_hint(file)), kMessageLimit);
    if (reporter_.is_open()) std::this_thread::sleep_for(kHoldsReport);
    std::_Exit(exit_status(ErrorCategory::communication));
  }
  options_.on_failure(report);
}

Watchdog::Watchdog(std::unique_ptr<Agent> agent, std::vector<const Activity*> replicas,
                   WatchdogOptions options)
    : thread_(std::make_unique<Thread>(std::move(agent), unowned(replicas),
                                       complete(std::move(options)))) {}

Watchdog::Watchdog(std::vector<const Activity*> replicas, WatchdogOptions options) {
  options = complete(std::move(options));
  if (options.stall_timeout == 0) return;
  auto agent = make_coordinator(1, options.host, options.stall_timeout, options.heartbeat);
  thread_ = std::make_unique<Thread>(std::move(agent), unowned(replicas), std::move(options));
}

Watchdog::Watchdog(const Communicator& ranks, std::vector<const Activity*> replicas,
                   WatchdogOptions options) {
  options = complete(std::move(options));
  const int rank = ranks.rank();

  std::unique_ptr<Coordinator> coordinator;
  std::optional<ErrorMessage> error;
  std::string mine;
  const std::vector<std::string> addresses = addresses_for_ranks(ranks);
  try {
    if (rank == 0) {
      coordinator = make_coordinator(ranks.size(), options.host, options.stall_timeout,
                                     options.heartbeat, addresses);
      mine = write_invitation(coordinator->invitation());
    }
  } catch (const Error& caught) {
    error = caught.message();
  }
  raise_first(ranks, error);
  const auto invitation = read_invitation(gather_texts(ranks, mine).front());
  LOCKSTEP_CHECK(invitation.has_value());
  if (invitation->stall_timeout == 0) return;

  options.heartbeat = invitation->heartbeat;
  try {
    std::unique_ptr<Agent> agent = std::move(coordinator);
    if (!agent) agent = make_member(rank, options.host, *invitation);
    thread_ = std::make_unique<Thread>(std::move(agent), unowned(replicas), std::move(options));
  } catch (const Error& caught) {
    error = caught.message();
  }
  // If one rank cannot connect, all ranks throw; those that have connected end their watch.
  raise_first(ranks, error);
}

Watchdog::~Watchdog() = default;

void Watchdog::watch(std::vector<std::shared_ptr<const Activity>> replicas) {
  if (thread_) thread_->watch(std::move(replicas));
}

void Watchdog::announce_error() {
  if (thread_) thread_->announce_error();
}

}  // namespace lockstep::inline v0::allreduce
