#include "lockstep/job/signal/delayed_termination.h"

#include <ctime>

namespace lockstep::inline v0::job {
namespace {

// Less than the second after which mpirun sends SIGKILL.
constexpr timespec kDelay{.tv_sec = 0, .tv_nsec = 800'000'000};

// Runs on any thread except the watchdog's, which blocks signals. Calls only async-signal-safe
// functions.
extern "C" void terminate_late(int signal) {
  timespec left = kDelay;
  while (nanosleep(&left, &left) != 0) continue;
  struct sigaction usual = {};
  usual.sa_handler = SIG_DFL;
  sigaction(signal, &usual, nullptr);
  raise(signal);
}

bool handles(void (*handler)(int)) {
  struct sigaction now = {};
  sigaction(SIGTERM, nullptr, &now);
  return (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == handler;
}

}  // namespace

DelayedTermination::DelayedTermination(const Session& session) {
  if (session.size() == 1 || !handles(SIG_DFL)) return;
  struct sigaction late = {};
  late.sa_handler = terminate_late;
  late.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&late.sa_mask);
  is_installed_ = sigaction(SIGTERM, &late, nullptr) == 0;
}

DelayedTermination::~DelayedTermination() {
  if (!is_installed_ || !handles(terminate_late)) return;
  struct sigaction usual = {};
  usual.sa_handler = SIG_DFL;
  sigaction(SIGTERM, &usual, nullptr);
}

}  // namespace lockstep::inline v0::job
