// The addresses of rank 0, determined before the watchdog starts.
#pragma once

#include <string>
#include <vector>

#include "lockstep/allreduce/communicator.h"

namespace lockstep::inline v0::allreduce {

/// The addresses at which other ranks can reach rank 0's host: only loopback if all ranks share its
/// network, else those of the interfaces with a route to the other hosts; empty if there is no
/// route. Always empty on the other ranks. Collective.
std::vector<std::string> addresses_for_ranks(const Communicator& ranks);

}  // namespace lockstep::inline v0::allreduce
