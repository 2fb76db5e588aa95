#include "lockstep/net/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/net/interfaces.h"

namespace lockstep::net {
namespace {

constexpr std::size_t kMaxAddresses = 8;

std::string message_of(int error) { return std::generic_category().message(error); }

void send_at_once(int descriptor) {
  const int yes = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

/// A listening socket at `address`; an IPv6 socket accepts IPv4 as well. On failure, not open and errno is set.
FileDescriptor listen_at(const sockaddr* address, socklen_t size, std::uint16_t port) {
  FileDescriptor socket(::socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return {};
  // Allows reuse of a port that was in use recently.
  const int yes = 1;
  if (port != 0) setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (address->sa_family == AF_INET6) {
    const int no = 0;
    setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  }
  if (bind(socket.get(), address, size) != 0 || listen(socket.get(), SOMAXCONN) != 0) return {};
  return socket;
}

/// A listening socket at any address of `family`.
FileDescriptor listen_on(int family, std::uint16_t port) {
  sockaddr_storage any{};  // all zero is "any address, any port" in both families
  any.ss_family = static_cast<sa_family_t>(family);
  // The port has the same offset in both families.
  reinterpret_cast<sockaddr_in*>(&any)->sin_port = htons(port);
  return listen_at(reinterpret_cast<const sockaddr*>(&any),
                   family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in), port);
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// Resolves a numeric address; null if it is not one.
Addresses numeric(const std::string& address, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) found = nullptr;
  return {found, freeaddrinfo};
}

std::uint16_t port_of(const FileDescriptor& socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size);
  // The port has the same offset in both families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&own)->sin_port);
}

/// Waits until the pending connection attempt has ended. Returns 0 or its error.
int await_connection(int descriptor, std::chrono::milliseconds limit) {
  pollfd ready{.fd = descriptor, .events = POLLOUT, .revents = 0};
  if (poll(&ready, 1, static_cast<int>(limit.count())) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (is_open()) close(number_);
}

Listener::Listener(std::uint16_t port) : socket_(listen_on(AF_INET6, port)) {
  if (!socket_.is_open() && errno != EADDRINUSE) socket_ = listen_on(AF_INET, port);
  if (!socket_.is_open())
    throw Error(ErrorCategory::communication, "network",
                port == 0 ? "expected a TCP port to listen on" : fmt::format("expected TCP port {} to listen on", port),
                message_of(errno));
  port_ = port_of(socket_);
}

Listener::Listener(const std::string& address, std::uint16_t port) {
  if (const Addresses found = numeric(address, port)) {
    socket_ = listen_at(found->ai_addr, found->ai_addrlen, port);
  } else {
    errno = EADDRNOTAVAIL;
  }
  if (!socket_.is_open())
    throw Error(ErrorCategory::communication, "network",
                port == 0 ? fmt::format("expected a TCP port of {} to listen on", address)
                          : fmt::format("expected TCP port {} to listen on", port),
                message_of(errno));
  port_ = port_of(socket_);
}

FileDescriptor Listener::accept() const {
  FileDescriptor socket(accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.is_open()) send_at_once(socket.get());
  return socket;
}

std::vector<std::string> host_addresses() {
  std::vector<std::string> loopback;
  std::vector<std::string> others;
  for (const net::InterfaceAddress& one : net::interface_addresses())
    (is_loopback(one.address) ? loopback : others).push_back(one.address);
  std::vector<std::string> all = loopback.empty() && others.empty() ? std::vector<std::string>{"127.0.0.1"} : loopback;
  all.insert(all.end(), others.begin(), others.end());
  if (all.size() > kMaxAddresses) all.erase(all.begin() + kMaxAddresses, all.end());
  return all;
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "?";
  return name.data();
}

FileDescriptor connect_to(const std::string& address, std::uint16_t port, std::chrono::milliseconds limit,
                          std::string& why) {
  const Addresses found = numeric(address, port);
  if (!found) {
    why = "not an address";
    return {};
  }
  FileDescriptor socket(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  int error = socket.is_open() && connect(socket.get(), found->ai_addr, found->ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) error = await_connection(socket.get(), limit);
  if (error != 0) {
    why = message_of(error);
    return {};
  }
  send_at_once(socket.get());
  return socket;
}

}  // namespace lockstep::net
