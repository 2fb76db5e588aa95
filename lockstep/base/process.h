// How processes of one host recognize one another, and what a process that died left behind.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace lockstep {

/// The boot of this host and the PID namespace of this process, as at most 33 characters of [0-9a-f-]: processes with
/// the same text can refer to one another by process number. Empty where the kernel does not tell.
const std::string& process_namespace();

/// Whether this PID namespace has no process `process` (any more).
bool is_process_gone(pid_t process);

// Threads that may not be had: their number is limited, for a user (ulimit -u) and for a container (pids.max).

/// Throws Error (device): the system gives no thread for `purpose`, because of `error`.
[[noreturn]] void throw_no_thread(std::string_view purpose, const std::system_error& error);

/// A thread that runs `body`, for `purpose` ("a replica"). Throws Error (device) where the system gives none.
template <typename Thread = std::thread, typename Body>
Thread start_thread(std::string_view purpose, Body&& body) {
  try {
    return Thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    throw_no_thread(purpose, error);
  }
}

/// Starts the threads that the kernels of the calling thread share its work with (set_thread_budget), which otherwise
/// start with the first kernel: the runtime of OpenMP ends the process where it gets none. Throws Error (device) then.
/// One call at a time in a process.
void start_kernel_threads();

}  // namespace lockstep
