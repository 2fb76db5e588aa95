#include "strategy/signals.h"

#include <atomic>

namespace lockstep::strategy {
namespace {

// A signal handler is given nothing but the signal's number, so what it notes has to be reachable without an object.
std::atomic<int> noted_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may touch lock-free atomics only");

extern "C" void note_signal(int signal) { noted_signal.store(signal, std::memory_order_relaxed); }

void install(int signal, int flags, struct sigaction& previous) {
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART | flags;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, &previous);
}

}  // namespace

SignalWatch::SignalWatch() {
  noted_signal.store(0, std::memory_order_relaxed);
  install(SIGTERM, 0, previous_terminate_);
  install(SIGINT, static_cast<int>(SA_RESETHAND), previous_interrupt_);
}

SignalWatch::~SignalWatch() {
  sigaction(SIGTERM, &previous_terminate_, nullptr);
  sigaction(SIGINT, &previous_interrupt_, nullptr);
}

int SignalWatch::received() const noexcept { return noted_signal.load(std::memory_order_relaxed); }

}  // namespace lockstep::strategy
