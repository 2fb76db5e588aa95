// The way out of a process whose other threads may hang anywhere.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "lockstep/net/socket.h"

namespace lockstep::allreduce {

/// Writes to standard error without any lock, and gives up where nobody reads it within `limit`.
void print_error(std::string_view text, std::chrono::milliseconds limit);

/// Lets one rank of each host speak: open for the first of `job` that asks, and for no other as long as the first keeps
/// it.
net::FileDescriptor claim_voice(const std::string& job);

}  // namespace lockstep::allreduce
