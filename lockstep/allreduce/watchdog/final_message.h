// Output of a process that is about to exit and whose other threads may hang.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "lockstep/net/socket.h"

namespace lockstep::inline v0::allreduce {

/// Writes to standard error without locks; returns after `limit` if the reader does not read.
void print_error(std::string_view text, std::chrono::milliseconds limit);

/// Selects the rank of each host that reports: returns an open descriptor to the first caller of
/// `job` on the host, and a closed one to others as long as the first keeps it.
FileDescriptor claim_report(const std::string& job);

}  // namespace lockstep::inline v0::allreduce
