#pragma once

#include <string>

#include "lockstep/job/session.h"

namespace lockstep::inline v0::job {

/// The network interface by which this rank reaches the ranks of other nodes: the one that MPI is
/// configured to use (btl_tcp_if_include), otherwise the one from the routing table for their
/// addresses. Empty in a job of one node, and if unknown. Collective.
std::string traffic_interface(const Session& session);

}  // namespace lockstep::inline v0::job
