// Members of one process that exchange messages over sockets, as processes do over TCP.
#pragma once

#include <sys/socket.h>

#include <memory>
#include <vector>

#include "lockstep/allreduce/transport/tcp_endpoint.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {

/// The transport of each member. `nodes`: the node of each.
inline std::vector<std::shared_ptr<Transport>> connected_members(const std::vector<int>& nodes) {
  const std::size_t size = nodes.size();
  std::vector<std::vector<net::FileDescriptor>> sockets(size);
  for (auto& of_member : sockets) of_member.resize(size);
  for (std::size_t first = 0; first < size; ++first)
    for (std::size_t second = 0; second < first; ++second) {
      int pair[2];
      LOCKSTEP_CHECK_OP(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), ==, 0);
      sockets[first][second] = net::FileDescriptor(pair[0]);
      sockets[second][first] = net::FileDescriptor(pair[1]);
    }
  std::vector<std::shared_ptr<Transport>> members;
  for (std::size_t member = 0; member < size; ++member)
    members.push_back(make_transport(
        make_tcp_endpoint(static_cast<int>(member), nodes, /*job=*/7, std::move(sockets[member]))));
  return members;
}

}  // namespace lockstep::inline v0::allreduce
