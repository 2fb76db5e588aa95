// How processes of one host recognize one another, and what a process that died left behind.
#pragma once

#include <sys/types.h>

#include <string>

namespace lockstep::device {

/// The boot of this host and the PID namespace of this process, as at most 33 characters of [0-9a-f-]: processes with
/// the same text can refer to one another by process number. Empty where the kernel does not tell.
const std::string& process_namespace();

/// Whether this PID namespace has no process `process` (any more).
bool is_process_gone(pid_t process);

}  // namespace lockstep::device
