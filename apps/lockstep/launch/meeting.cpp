#include "apps/lockstep/launch/meeting.h"

#include <poll.h>

#include <algorithm>

namespace lockstep::apps::launch {

std::vector<Event> Meeting::wait(const SignalQueue& signals, Clock::time_point deadline) {
  std::erase_if(visitors_, [](const Visitor& visitor) { return visitor.left; });
  std::vector<pollfd> interests = {{.fd = signals.descriptor(), .events = POLLIN, .revents = 0},
                                   {.fd = listener_.descriptor(), .events = POLLIN, .revents = 0}};
  for (const Visitor& visitor : visitors_) interests.push_back(visitor.link.interest());
  // What was closed here is told of at once.
  const bool all_open = std::ranges::all_of(visitors_, [](const Visitor& visitor) { return visitor.link.is_open(); });
  const auto left =
      all_open ? std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count() : std::int64_t{0};
  poll(interests.data(), interests.size(), static_cast<int>(std::max<std::int64_t>(0, left)));
  while (true) {
    allreduce::FileDescriptor socket = listener_.accept();
    if (!socket.is_open()) break;
    visitors_.push_back({.link = Link(std::move(socket))});
  }
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
