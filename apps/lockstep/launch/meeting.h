// Where the tasks of a job meet: the first task's end of the connections.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "apps/lockstep/launch/arrival.h"
#include "apps/lockstep/launch/child.h"
#include "apps/lockstep/launch/link.h"
#include "lockstep/net/authentication.h"

namespace lockstep::apps::launch {

/// Whoever has connected, and has proved to be of the job.
struct Visitor {
  Link link;
  bool is_agent = false;                     ///< of our mpirun; the others are tasks
  std::optional<Arrival> task = {};          ///< what a task told of itself
  std::optional<std::size_t> agent_of = {};  ///< the host that an agent of mpirun stands for
  bool left = false;                         ///< its connection is over, and that has been told
};

/// Something that a visitor did.
struct Event {
  Visitor* visitor = nullptr;
  std::optional<Frame> frame = {};  ///< none: its connection is over
};

class Meeting {
 public:
  using Clock = std::chrono::steady_clock;

  /// Of tasks that know `secret`. One that does not answer for `stall_timeout` counts as lost.
  Meeting(std::vector<net::Listener> listeners, const net::JobSecret& secret, std::chrono::seconds stall_timeout);

  /// Lets agents of mpirun come that know `token`, to a port of 127.0.0.1. Returns the port.
  std::uint16_t expect_agents(const net::JobSecret& token);
  /// Connections that nobody let in, because they did not prove to be of the job.
  int refused() const { return tasks_.refused(); }

  /// Those with a connection. Pointers to them stay what they are.
  std::list<Visitor>& visitors() { return visitors_; }

  /// Waits for something to happen, a signal included, until `deadline` at most.
  std::vector<Event> wait(const SignalQueue& signals, Clock::time_point deadline);

 private:
  void let_in(net::PendingConnections& pending, bool agents);

  std::chrono::seconds stall_timeout_;
  net::PendingConnections tasks_;
  std::optional<net::PendingConnections> agents_;
  std::list<Visitor> visitors_;
};

}  // namespace lockstep::apps::launch
