// The rendezvous of the tasks: its addresses, whether it requires a secret, the connections of the
// first task with the others, and whether their hosts reach each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "apps/lockstep/launch/child.h"
#include "apps/lockstep/launch/messages.h"
#include "lockstep/job/launch/rendezvous.h"
#include "lockstep/job/launch/task.h"
#include "lockstep/net/authentication.h"
#include "lockstep/net/connection.h"
#include "lockstep/net/socket.h"
#include "lockstep/net/token.h"

namespace lockstep::inline v0::apps::launch {

/// Raises this process's limit of open files for a job of `tasks`, as far as the hard limit allows:
/// per task, its connection, that of an agent of mpirun, and attempts at all addresses of its host.
void allow_connections(int tasks);

/// Tests whether this host reaches the others, before mpirun runs, which would wait for unreachable
/// ones. Connects to all targets concurrently. Returns an entry for each host that did not answer
/// at any address within `limit`, with the most informative error: "b at 10.0.0.2 by eth0:
/// Connection refused".
std::vector<std::string> try_to_reach(const std::vector<Target>& targets,
                                      std::chrono::milliseconds limit);

/// An authenticated peer.
struct Client {
  net::Connection link;
  bool is_agent = false;                     ///< an agent of mpirun; otherwise a task
  std::optional<JoinRequest> task = {};      ///< the task's request to join
  std::optional<std::size_t> agent_of = {};  ///< the host that the agent represents
  bool left = false;  ///< its connection has closed, and the event was returned
};

/// A frame from a client, or the end of its connection.
struct Event {
  Client* client = nullptr;
  std::optional<net::Frame> frame = {};  ///< nullopt: the connection has closed
};

class Rendezvous {
 public:
  using Clock = std::chrono::steady_clock;

  /// Accepts tasks that authenticate with `secret`. A task that does not respond for
  /// `stall_timeout` is considered lost.
  Rendezvous(std::vector<net::Listener> listeners, const net::JobSecret& secret,
             std::chrono::seconds stall_timeout);

  /// Accepts agents of mpirun that authenticate with `token` at a port of 127.0.0.1. Returns the
  /// port.
  std::uint16_t expect_agents(const net::JobSecret& token);
  /// Number of connections that failed to authenticate.
  int refused() const { return tasks_.refused(); }

  /// The connected clients. Pointers to them stay valid until they disconnect.
  std::list<Client>& clients() { return clients_; }

  /// Waits for an event or a signal, until `deadline` at the latest.
  std::vector<Event> wait(const SignalQueue& signals, Clock::time_point deadline);

 private:
  void accept_from(net::PendingConnections& pending, bool agents);

  std::chrono::seconds stall_timeout_;
  net::PendingConnections tasks_;
  std::optional<net::PendingConnections> agents_;
  std::list<Client> clients_;
};

}  // namespace lockstep::inline v0::apps::launch
