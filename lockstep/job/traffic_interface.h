#pragma once

#include <string>

#include "lockstep/job/session.h"

namespace lockstep::job {

/// The network interface by which this rank reaches the ranks of other nodes: what MPI was told to use
/// (btl_tcp_if_include), else what the table of routes says for their addresses. Empty in a job of one node, and where
/// the system does not tell. Collective.
std::string traffic_interface(const Session& session);

}  // namespace lockstep::job
