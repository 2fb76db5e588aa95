// Messages over TCP connections between all processes of a job.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/allreduce/transport/endpoint.h"
#include "lockstep/net/socket.h"

namespace lockstep::inline v0::allreduce {

/// A process and its connections: one for each other process, by rank (that of `rank` itself is not
/// open), connected, non-blocking, of authenticated processes. Nothing moves but in poll() and
/// send(), by the caller's thread: no thread of its own.
///
/// A connection that ends or breaks loses its process (Endpoint::lose); so does one that carries
/// something else than messages of this job.
std::shared_ptr<Endpoint> make_tcp_endpoint(int rank, std::vector<int> nodes, std::uint64_t job,
                                            std::vector<net::FileDescriptor> connections);

}  // namespace lockstep::inline v0::allreduce
