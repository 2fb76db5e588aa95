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

namespace lockstep::apps::launch {

/// Whoever has connected.
struct Visitor {
  Link link;
  std::optional<Arrival> task = {};  ///< what it told of itself; none for an agent of mpirun, and for a stranger
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

  /// Throws Error (communication) where the port is taken.
  explicit Meeting(std::uint16_t port) : listener_(port) {}

  std::uint16_t port() const { return listener_.port(); }
  /// Those with a connection. Pointers to them stay what they are.
  std::list<Visitor>& visitors() { return visitors_; }

  /// Waits for something to happen, a signal included, until `deadline` at most.
  std::vector<Event> wait(const SignalQueue& signals, Clock::time_point deadline);

 private:
  allreduce::Listener listener_;
  std::list<Visitor> visitors_;
};

}  // namespace lockstep::apps::launch
