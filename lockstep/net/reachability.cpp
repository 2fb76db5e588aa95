#include "lockstep/net/reachability.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <system_error>

#include "lockstep/net/interfaces.h"

namespace lockstep::inline v0::net {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxAddresses = 8;

/// Starts an attempt. Returns whether it is in progress.
bool begin(Attempt& attempt) {
  const std::optional<SocketAddress> to =
      parse_address(attempt.endpoint.address, attempt.endpoint.port);
  if (!to) {
    attempt.failure = "not an address";
    return false;
  }
  attempt.socket = tcp_socket(to->storage.ss_family);
  if (attempt.socket.is_open() && connect(attempt.socket.get(), to->get(), to->size) == 0)
    return false;
  if (attempt.socket.is_open() && errno == EINPROGRESS) return true;
  attempt.failure = std::generic_category().message(errno);
  return false;
}

void time_out(Attempt& attempt) {
  attempt.timed_out = true;
  attempt.failure = std::generic_category().message(ETIMEDOUT);
}

/// Waits until one of the attempts in progress ends, or for `limit`, and marks those that have
/// ended.
void wait_for_some(std::vector<Attempt>& attempts, std::vector<bool>& in_progress,
                   std::chrono::milliseconds limit) {
  std::vector<pollfd> interests;
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    if (!in_progress[i]) continue;
    interests.push_back({.fd = attempts[i].socket.get(), .events = POLLOUT, .revents = 0});
    numbers.push_back(i);
  }
  poll(interests.data(), interests.size(), static_cast<int>(limit.count()));
  for (std::size_t i = 0; i < interests.size(); ++i) {
    if (interests[i].revents == 0) continue;
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(interests[i].fd, SOL_SOCKET, SO_ERROR, &error, &size);
    in_progress[numbers[i]] = false;
    attempts[numbers[i]].timed_out = error == ETIMEDOUT;
    if (error != 0) attempts[numbers[i]].failure = std::generic_category().message(error);
  }
}

/// Ends the attempts at hosts that have answered at another endpoint.
void abandon_answered_hosts(std::vector<Attempt>& attempts, std::vector<bool>& in_progress,
                            std::size_t hosts) {
  std::vector<bool> answered(hosts);
  for (std::size_t i = 0; i < attempts.size(); ++i)
    if (attempts[i].failure.empty() && !in_progress[i]) answered[attempts[i].host] = true;
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    if (!in_progress[i] || !answered[attempts[i].host]) continue;
    in_progress[i] = false;
    time_out(attempts[i]);
  }
}

}  // namespace

std::vector<std::string> host_addresses() {
  std::vector<std::string> loopback;
  std::vector<std::string> others;
  for (const InterfaceAddress& one : interface_addresses())
    (is_loopback(one.address) ? loopback : others).push_back(one.address);
  std::vector<std::string> all =
      loopback.empty() && others.empty() ? std::vector<std::string>{"127.0.0.1"} : loopback;
  all.insert(all.end(), others.begin(), others.end());
  if (all.size() > kMaxAddresses) all.erase(all.begin() + kMaxAddresses, all.end());
  return all;
}

std::vector<std::string> addresses_for_other_hosts() {
  std::vector<std::string> all = host_addresses();
  std::erase_if(all, is_loopback);
  return all;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

std::vector<std::string> addresses_of(const std::string& name, std::string& why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(name.c_str(), nullptr, &hints, &found); error != 0) {
    why = fmt::format("the name {} has no address: {}", name, gai_strerror(error));
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next)
    if (std::string text = numeric_address(one->ai_addr); !text.empty())
      addresses.push_back(std::move(text));
  return addresses;
}

std::vector<Attempt> connect_to_hosts(const std::vector<std::vector<Endpoint>>& hosts,
                                      std::chrono::milliseconds limit, Until until) {
  const auto deadline = Clock::now() + limit;
  std::vector<Attempt> attempts;
  for (std::size_t host = 0; host < hosts.size(); ++host)
    for (const Endpoint& endpoint : hosts[host])
      attempts.push_back({.host = host, .endpoint = endpoint});
  std::vector<bool> in_progress;
  for (Attempt& attempt : attempts) in_progress.push_back(begin(attempt));
  for (;;) {
    if (until == Until::each_host_answered)
      abandon_answered_hosts(attempts, in_progress, hosts.size());
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (std::ranges::find(in_progress, true) == in_progress.end() || left.count() <= 0) break;
    wait_for_some(attempts, in_progress, left);
  }
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    if (in_progress[i]) time_out(attempts[i]);
    if (!attempts[i].failure.empty()) attempts[i].socket = FileDescriptor();
  }
  return attempts;
}

FileDescriptor connect_to(const std::string& address, std::uint16_t port,
                          std::chrono::milliseconds limit, std::string& why) {
  const std::vector<std::vector<Endpoint>> hosts = {{{.address = address, .port = port}}};
  Attempt attempt =
      std::move(connect_to_hosts(hosts, limit, Until::each_endpoint_answered).front());
  if (!attempt.failure.empty()) why = std::move(attempt.failure);
  return std::move(attempt.socket);
}

}  // namespace lockstep::inline v0::net
