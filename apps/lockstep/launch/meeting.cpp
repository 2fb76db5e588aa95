#include "apps/lockstep/launch/meeting.h"

#include <poll.h>

#include <algorithm>
#include <cmath>

namespace lockstep::apps::launch {
namespace {

double seconds_of(Meeting::Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

/// For poll: until the deadline, or a time of PendingConnections, which may be infinite.
int milliseconds_until(Meeting::Clock::time_point deadline, double other, double now) {
  const double left = std::min(std::min(seconds_of(deadline), other) - now, 3600.0);
  return static_cast<int>(std::ceil(std::max(0.0, left) * 1000));
}

}  // namespace

Meeting::Meeting(std::vector<net::Listener> listeners, const net::JobSecret& secret, std::chrono::seconds stall_timeout)
    : stall_timeout_(stall_timeout), tasks_(std::move(listeners), secret, net::kLaunchPurpose) {}

std::uint16_t Meeting::expect_agents(const net::JobSecret& token) {
  std::vector<net::Listener> listeners;
  listeners.emplace_back("127.0.0.1", std::uint16_t{0});
  const std::uint16_t port = listeners.front().port();
  agents_.emplace(std::move(listeners), token, net::kAgentPurpose);
  return port;
}

void Meeting::let_in(net::PendingConnections& pending, bool agents) {
  for (net::FileDescriptor& socket : pending.advance(seconds_of(Clock::now())))
    visitors_.push_back({.link = Link(std::move(socket), stall_timeout_), .is_agent = agents});
}

std::vector<Event> Meeting::wait(const SignalQueue& signals, Clock::time_point deadline) {
  std::erase_if(visitors_, [](const Visitor& visitor) { return visitor.left; });
  const double now = seconds_of(Clock::now());
  std::vector<pollfd> interests = {{.fd = signals.descriptor(), .events = POLLIN, .revents = 0}};
  tasks_.add_interests(interests, now);
  double next = tasks_.next_deadline();
  if (agents_) {
    agents_->add_interests(interests, now);
    next = std::min(next, agents_->next_deadline());
  }
  for (const Visitor& visitor : visitors_) interests.push_back(visitor.link.interest());
  // What was closed here is told of at once.
  const bool all_open = std::ranges::all_of(visitors_, [](const Visitor& visitor) { return visitor.link.is_open(); });
  poll(interests.data(), interests.size(), all_open ? milliseconds_until(deadline, next, now) : 0);
  let_in(tasks_, false);
  if (agents_) let_in(*agents_, true);
  std::vector<Event> events;
  for (Visitor& visitor : visitors_) {
    for (Frame& frame : visitor.link.receive()) events.push_back({.visitor = &visitor, .frame = std::move(frame)});
    if (visitor.link.is_open()) continue;
    visitor.left = true;
    events.push_back({.visitor = &visitor});
  }
  return events;
}

}  // namespace lockstep::apps::launch
