#include "lockstep/job/launch/start_monitor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "lockstep/allreduce/watchdog/final_message.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/system/process.h"
#include "lockstep/base/terminal.h"
#include "lockstep/job/launch/launcher.h"

namespace lockstep::inline v0::job {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{200};
constexpr double kLongestPause = 1;       // seconds; a busy machine delays a tick by less
constexpr milliseconds kLineLimit{1000};  // if the reader of standard error does not read
constexpr milliseconds kHoldsReport{
    2000};  // until the other ranks of the host have seen that one reports

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Equal for the ranks of a job on this host.
std::string name_of_job() {
  const char* const name_space = process_environment()("PMIX_NAMESPACE");
  return fmt::format("start {}", name_space != nullptr ? name_space : std::to_string(::getppid()));
}

/// Whether a debugger, or another tracer, is attached.
bool is_traced() { return number_in("/proc/self/status", "TracerPid:").value_or(0) != 0; }

}  // namespace

StartMonitor::StartMonitor()
    : rank_(detect_launch().rank), host_(host_name()), job_(name_of_job()) {}

StartMonitor::~StartMonitor() {
  {
    const std::lock_guard held(lock_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StartMonitor::watch(double seconds) {
  const std::lock_guard held(lock_);
  limit_ = seconds;
  time_.emplace(seconds_now(), kLongestPause);
  changed_.notify_all();
  if (thread_.joinable() || seconds <= 0) return;
  try {
    thread_ = start_quiet_thread("the monitor of the start", [this] { run(); });
  } catch (const Error&) {
    // The start continues; code that needs threads reports that there are none.
  }
}

void StartMonitor::enter(const StartCall& call) {
  const std::lock_guard held(lock_);
  call_ = &call;
  changed_.notify_all();
}

void StartMonitor::leave() {
  const std::lock_guard held(lock_);
  call_ = nullptr;
}

void StartMonitor::run() {
  std::unique_lock held(lock_);
  while (!stopping_) {
    if (call_ == nullptr || limit_ <= 0) {
      changed_.wait(held);
      // There was no wait in the meantime.
      time_->advance(seconds_now(), false);
      continue;
    }
    changed_.wait_for(held, kTick);
    const double running = time_->advance(seconds_now(), !is_traced());
    if (!stopping_ && call_ != nullptr && limit_ > 0 && running >= limit_) end(*call_, limit_);
  }
}

void StartMonitor::end(const StartCall& call, double limit) const {
  const FileDescriptor reporter = allreduce::claim_report(job_);
  if (reporter.is_open()) {
    const Error error(ErrorCategory::communication, "start",
                      fmt::format("expected {} to return within {} s", call.name, limit),
                      fmt::format("rank {}, host {}, is waiting: {}", rank_, host_, call.advice));
    allreduce::print_error(fmt::format("{}lockstep: error: {}\n", message_start(), error.what()),
                           kLineLimit);
  }
  // All ranks: mpirun ends those that remain as soon as one has ended.
  std::this_thread::sleep_for(kHoldsReport);
  std::_Exit(exit_status(ErrorCategory::communication));
}

}  // namespace lockstep::inline v0::job
