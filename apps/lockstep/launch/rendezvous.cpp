#include "apps/lockstep/launch/rendezvous.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/net/interfaces.h"
#include "lockstep/net/reachability.h"

namespace lockstep::inline v0::apps::launch {
namespace {

constexpr rlim_t kConnectionsPerTask =
    10;  // its own, its agent's, and attempts at up to eight addresses
constexpr rlim_t kOtherFiles = 128;

/// Ranks failed attempts for the error message, the most informative first: a timeout, then other
/// errors, then an address that this host has too, such as that of a container bridge.
int vagueness(const net::Attempt& attempt) {
  const std::string& address = attempt.endpoint.address;
  if (net::route_to(address).address == address) return 2;
  return attempt.timed_out ? 0 : 1;
}

std::string describe(const Target& target, const net::Attempt& attempt) {
  const net::NetworkRoute way = net::route_to(attempt.endpoint.address);
  return fmt::format("{} at {} by {}: {}", target.host, attempt.endpoint.address,
                     way.interface.empty() ? "no interface" : way.interface, attempt.failure);
}

}  // namespace

void allow_connections(int tasks) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t needed = kOtherFiles + kConnectionsPerTask * static_cast<rlim_t>(tasks);
  if (limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::vector<std::string> try_to_reach(const std::vector<Target>& targets,
                                      std::chrono::milliseconds limit) {
  std::vector<std::vector<net::Endpoint>> hosts(targets.size());
  for (std::size_t i = 0; i < targets.size(); ++i)
    for (const std::string& address : targets[i].addresses)
      hosts[i].push_back({.address = address, .port = targets[i].port});
  const std::vector<net::Attempt> attempts =
      net::connect_to_hosts(hosts, limit, net::Until::each_host_answered);
  std::vector<std::string> failures;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    // Not equal_range: clang 14 cannot compile its view.
    const auto first = std::ranges::lower_bound(attempts, i, {}, &net::Attempt::host);
    const auto last = std::ranges::upper_bound(attempts, i, {}, &net::Attempt::host);
    if (first == last)
      failures.push_back(targets[i].host + ": it has no address");
    else if (std::ranges::find(first, last, "", &net::Attempt::failure) == last)
      failures.push_back(
          describe(targets[i], *std::ranges::min_element(first, last, {}, vagueness)));
  }
  return failures;
}

namespace {

double seconds_of(Rendezvous::Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

/// Timeout for poll(): until `deadline` or `other`, which may be infinite.
int milliseconds_until(Rendezvous::Clock::time_point deadline, double other, double now) {
  const double left = std::min(std::min(seconds_of(deadline), other) - now, 3600.0);
  return static_cast<int>(std::ceil(std::max(0.0, left) * 1000));
}

}  // namespace

Rendezvous::Rendezvous(std::vector<net::Listener> listeners, const net::JobSecret& secret,
                       std::chrono::seconds stall_timeout)
    : stall_timeout_(stall_timeout), tasks_(std::move(listeners), secret, net::kLaunchPurpose) {}

std::uint16_t Rendezvous::expect_agents(const net::JobSecret& token) {
  std::vector<net::Listener> listeners;
  listeners.emplace_back("127.0.0.1", std::uint16_t{0});
  const std::uint16_t port = listeners.front().port();
  agents_.emplace(std::move(listeners), token, net::kAgentPurpose);
  return port;
}

void Rendezvous::accept_from(net::PendingConnections& pending, bool agents) {
  for (FileDescriptor& socket : pending.advance(seconds_of(Clock::now()))) {
    net::set_keepalive_timeout(socket, stall_timeout_);
    clients_.push_back(
        {.link = net::Connection(std::move(socket), kFrameLimits), .is_agent = agents});
  }
}

std::vector<Event> Rendezvous::wait(const SignalQueue& signals, Clock::time_point deadline) {
  std::erase_if(clients_, [](const Client& client) { return client.left; });
  const double now = seconds_of(Clock::now());
  std::vector<pollfd> interests = {{.fd = signals.descriptor(), .events = POLLIN, .revents = 0}};
  tasks_.add_interests(interests, now);
  double next = tasks_.next_deadline(now);
  if (agents_) {
    agents_->add_interests(interests, now);
    next = std::min(next, agents_->next_deadline(now));
  }
  for (const Client& client : clients_) interests.push_back(client.link.interest());
  // Do not wait if a link was closed locally: its event is due.
  const bool all_open =
      std::ranges::all_of(clients_, [](const Client& client) { return client.link.is_open(); });
  poll(interests.data(), interests.size(), all_open ? milliseconds_until(deadline, next, now) : 0);
  accept_from(tasks_, false);
  if (agents_) accept_from(*agents_, true);
  std::vector<Event> events;
  for (Client& client : clients_) {
    for (net::Frame& frame : client.link.receive())
      events.push_back({.client = &client, .frame = std::move(frame)});
    if (client.link.is_open()) continue;
    client.left = true;
    events.push_back({.client = &client});
  }
  return events;
}

}  // namespace lockstep::inline v0::apps::launch
