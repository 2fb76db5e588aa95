#include "apps/lockstep/launch/reach.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "apps/lockstep/launch/join_request.h"
#include "lockstep/base/json.h"
#include "lockstep/net/interfaces.h"
#include "lockstep/net/socket.h"

namespace lockstep::apps::launch {
namespace {

using net::FileDescriptor;
using Clock = std::chrono::steady_clock;
using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

constexpr rlim_t kConnectionsPerTask = 10;  // its own, its agent's, and attempts at up to eight addresses
constexpr rlim_t kOtherFiles = 128;
constexpr std::size_t kMaxTargets = 100000;
constexpr std::size_t kMaxAddresses = 16;  // of a target
constexpr std::size_t kMaxName = 255;
constexpr std::size_t kMaxFields = kMaxTargets * (kMaxAddresses + 4);

/// One attempt at one address of a target.
struct Attempt {
  std::size_t target = 0;
  std::string address;
  FileDescriptor socket = {};
  int error = 0;  // EINPROGRESS while it is in progress
};

Attempt begin(std::size_t number, const std::string& address, std::uint16_t port) {
  Attempt attempt{.target = number, .address = address, .error = EADDRNOTAVAIL};
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return attempt;
  const Addresses owner(found, freeaddrinfo);
  attempt.socket = FileDescriptor(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  attempt.error =
      attempt.socket.is_open() && connect(attempt.socket.get(), found->ai_addr, found->ai_addrlen) == 0 ? 0 : errno;
  return attempt;
}

/// Waits for attempts in progress, and stores their results.
void wait_for(std::vector<Attempt>& attempts, const std::vector<bool>& reached, int milliseconds) {
  std::vector<pollfd> waiting;
  std::vector<Attempt*> whose;
  for (Attempt& attempt : attempts) {
    if (attempt.error != EINPROGRESS || reached[attempt.target]) continue;
    waiting.push_back({.fd = attempt.socket.get(), .events = POLLOUT, .revents = 0});
    whose.push_back(&attempt);
  }
  poll(waiting.data(), waiting.size(), milliseconds);
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if (waiting[i].revents == 0) continue;
    socklen_t size = sizeof(whose[i]->error);
    getsockopt(waiting[i].fd, SOL_SOCKET, SO_ERROR, &whose[i]->error, &size);
  }
}

/// Ranks failed attempts for the error message, the most informative first: a timeout, then other errors, then an
/// address that this host has too, such as that of a container bridge.
int vagueness(const Attempt& attempt) {
  if (net::way_to(attempt.address).address == attempt.address) return 2;
  return attempt.error == EINPROGRESS ? 0 : 1;
}

std::string describe(const Target& target, const Attempt& attempt) {
  const net::NetworkWay way = net::way_to(attempt.address);
  return fmt::format("{} at {} by {}: {}", target.host, attempt.address,
                     way.interface.empty() ? "no interface" : way.interface,
                     std::generic_category().message(attempt.error == EINPROGRESS ? ETIMEDOUT : attempt.error));
}

}  // namespace

std::string to_text(const std::vector<Target>& targets) {
  nlohmann::json all = nlohmann::json::array();
  for (const Target& target : targets) all.push_back({target.host, target.addresses, target.port});
  return dump_json(all);
}

std::vector<Target> parse_targets(const std::string& text) {
  std::vector<Target> targets;
  const nlohmann::json all = parse_fields(text, kMaxFields);
  for (const nlohmann::json& one : require_array(all, kMaxTargets)) {
    Target target{.host = line_of(element(one, 0), kMaxName)};
    for (const nlohmann::json& address : require_array(element(one, 1), kMaxAddresses)) {
      target.addresses.push_back(line_of(address, kMaxName));
      if (!is_address(target.addresses.back())) refuse("a numeric address", describe_json(address));
    }
    target.port = static_cast<std::uint16_t>(integer_of(element(one, 2), 1, 65535));
    targets.push_back(std::move(target));
  }
  return targets;
}

void allow_connections(int tasks) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t needed = kOtherFiles + kConnectionsPerTask * static_cast<rlim_t>(tasks);
  if (limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::vector<std::string> try_to_reach(const std::vector<Target>& targets, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  std::vector<Attempt> attempts;
  for (std::size_t i = 0; i < targets.size(); ++i)
    for (const std::string& address : targets[i].addresses) attempts.push_back(begin(i, address, targets[i].port));
  std::vector<bool> reached(targets.size());
  for (;;) {
    for (const Attempt& attempt : attempts)
      if (attempt.error == 0) reached[attempt.target] = true;
    const bool waits = std::ranges::any_of(
        attempts, [&](const Attempt& attempt) { return attempt.error == EINPROGRESS && !reached[attempt.target]; });
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (!waits || left <= 0) break;
    wait_for(attempts, reached, static_cast<int>(left));
  }
  std::vector<std::string> failures;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (reached[i]) continue;
    const auto first = std::ranges::lower_bound(attempts, i, {}, &Attempt::target);
    const auto last = std::ranges::upper_bound(attempts, i, {}, &Attempt::target);
    failures.push_back(first == last ? targets[i].host + ": it has no address"
                                     : describe(targets[i], *std::ranges::min_element(first, last, {}, vagueness)));
  }
  return failures;
}

std::vector<std::string> addresses_of(const std::string& name, std::string& why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(name.c_str(), nullptr, &hints, &found); error != 0) {
    why = fmt::format("the name {} has no address: {}", name, gai_strerror(error));
    return {};
  }
  const Addresses owner(found, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(one->ai_addr, one->ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0)
      addresses.emplace_back(text.data());
  }
  return addresses;
}

}  // namespace lockstep::apps::launch
