#include "lockstep/job/signal/signals.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

namespace lockstep::inline v0::job {
namespace {

// A signal handler receives only the signal number, so its state must be global.
std::atomic<int> noted_signal{0};
std::atomic<const std::string*> noted_notice{nullptr};  // null: none
static_assert(std::atomic<int>::is_always_lock_free &&
                  std::atomic<const std::string*>::is_always_lock_free,
              "a signal handler may use lock-free atomics only");

extern "C" void note_signal(int signal) {
  noted_signal.store(signal, std::memory_order_relaxed);
  const std::string* notice = noted_notice.load();
  if (signal != SIGINT || notice == nullptr) return;
  const int error = errno;
  // If standard error is lost, so is the notice.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, notice->data(), notice->size());
  errno = error;
}

/// Installs the handler for `signal` and returns the previous action.
struct sigaction install(int signal) {
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags =
      SA_RESTART | SA_ONSTACK | (signal == SIGINT ? static_cast<int>(SA_RESETHAND) : 0);
  sigemptyset(&action.sa_mask);
  struct sigaction previous = {};
  sigaction(signal, &action, &previous);
  return previous;
}

bool is_ignored(int signal) {
  struct sigaction now = {};
  return sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
         now.sa_handler == SIG_IGN;
}

/// Processors with wide registers need several KiB for a signal frame.
std::size_t stack_bytes() {
  const long least = ::sysconf(_SC_SIGSTKSZ);
  return std::max<std::size_t>(std::size_t{64} << 10,
                               least > 0 ? static_cast<std::size_t>(least) : 0);
}

}  // namespace

SignalStack::SignalStack() {
  stack_t now = {};
  if (::sigaltstack(nullptr, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) return;
  memory_ = std::make_unique<std::byte[]>(stack_bytes());
  const stack_t mine = {.ss_sp = memory_.get(), .ss_flags = 0, .ss_size = stack_bytes()};
  if (::sigaltstack(&mine, nullptr) != 0) memory_.reset();
}

SignalStack::~SignalStack() {
  if (!memory_) return;
  const stack_t none = {.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  ::sigaltstack(&none, nullptr);
}

SignalWatch::SignalWatch(std::span<const int> signals, const std::string& interrupt_notice) {
  if (!interrupt_notice.empty()) {
    // A terminal has echoed "^C", possibly behind a line that is updated in place.
    notice_ = (::isatty(STDERR_FILENO) != 0 ? "\n" : "") + interrupt_notice + "\n";
    noted_notice.store(&notice_);
  }
  noted_signal.store(0, std::memory_order_relaxed);
  previous_.reserve(signals.size());
  for (const int signal : signals)
    if (signal != SIGHUP || !is_ignored(SIGHUP)) previous_.emplace_back(signal, install(signal));
}

SignalWatch::~SignalWatch() {
  for (const auto& [signal, previous] : previous_) sigaction(signal, &previous, nullptr);
  noted_notice.store(nullptr);
}

int SignalWatch::received() const noexcept { return noted_signal.load(std::memory_order_relaxed); }

}  // namespace lockstep::inline v0::job
