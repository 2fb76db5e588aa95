// Process identity on one host, detection of dead processes, and starting threads.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace lockstep::inline v0 {

/// Identifies the boot of this host and the PID namespace of this process, in at most 33 characters
/// of [0-9a-f-]. Processes with the same text can refer to each other by process ID. Empty if
/// unknown.
const std::string& process_namespace();

/// A process of this boot and PID namespace. The ID alone does not identify it: the system reuses
/// the IDs of ended processes.
struct ProcessIdentity {
  pid_t id = 0;             ///< 0: unknown
  std::uint64_t start = 0;  ///< in clock ticks after the boot, as in /proc/ID/stat; 0: unknown
};

/// The calling process.
ProcessIdentity this_process();

/// "NAMESPACE-ID-START" of the calling process, for names of files.
std::string process_mark();

/// Parses a file name "…-NAMESPACE-ID-START-…" with process_mark(). Unknown if it has none, or if
/// the namespace is another one.
ProcessIdentity maker_of(std::string_view name);

/// Whether `process` is known and has ended.
bool is_process_gone(const ProcessIdentity& process);

// Starting threads can fail: their number is limited per user (ulimit -u) and per container
// (pids.max).

/// Throws Error (device): the system cannot start a thread for `purpose` because of `error`.
[[noreturn]] void throw_no_thread(std::string_view purpose, const std::system_error& error);

/// Starts a thread that runs `body`, for `purpose` ("a replica"). Throws Error (device) if the
/// system cannot start it.
template <typename Thread = std::thread, typename Body>
Thread start_thread(std::string_view purpose, Body&& body) {
  try {
    return Thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    throw_no_thread(purpose, error);
  }
}

/// Blocks all signals in the calling thread, and in the threads that it starts, for a scope.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

/// start_thread() for a thread that blocks all signals, which the program handles on its own
/// threads.
template <typename Body>
std::thread start_quiet_thread(std::string_view purpose, Body&& body) {
  const SignalsBlocked blocked;
  return start_thread(purpose, std::forward<Body>(body));
}

/// Starts the OpenMP threads of the calling thread's kernels (set_thread_budget), which otherwise
/// start with the first kernel. Throws Error (device) if the system cannot start them; the OpenMP
/// runtime would end the process instead. Not thread-safe.
///
/// Also makes idle OpenMP threads of this process sleep instead of spinning, as soon as its threads
/// have to wait for cores, unless GOMP_SPINCOUNT or OMP_WAIT_POLICY is set. For this, the first
/// call with several threads starts a thread that never ends.
void start_kernel_threads();

}  // namespace lockstep::inline v0
