#include "lockstep/net/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/net/interfaces.h"

namespace lockstep::inline v0::net {
namespace {

constexpr int kProbes = 6;                             // TCP keep-alive probes within a timeout
constexpr std::int64_t kMaxProbeSeconds = 32767;       // limit of the system
constexpr std::string_view kMappedPrefix = "::ffff:";  // before an IPv4 address on an IPv6 socket

void set(const FileDescriptor& socket, int level, int option, int value) {
  setsockopt(socket.get(), level, option, &value, sizeof(value));
}

/// A listening socket at `address`; an IPv6 socket accepts IPv4 as well. On failure, not open and
/// errno is set.
FileDescriptor listen_at(const sockaddr* address, socklen_t size, std::uint16_t port) {
  FileDescriptor socket = tcp_socket(address->sa_family);
  if (!socket.is_open()) return {};
  // Allows reuse of a port that was in use recently.
  if (port != 0) set(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (address->sa_family == AF_INET6) set(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
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

std::uint16_t port_of(const FileDescriptor& socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size);
  // The port has the same offset in both families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&own)->sin_port);
}

}  // namespace

Listener::Listener(std::uint16_t port) : socket_(listen_on(AF_INET6, port)) {
  if (!socket_.is_open() && errno != EADDRINUSE) socket_ = listen_on(AF_INET, port);
  if (!socket_.is_open())
    throw Error(ErrorCategory::communication, "network",
                port == 0 ? "expected a TCP port to listen on"
                          : fmt::format("expected TCP port {} to listen on", port),
                std::generic_category().message(errno));
  port_ = port_of(socket_);
}

Listener::Listener(const std::string& address, std::uint16_t port) {
  if (const auto at = parse_address(address, port)) {
    socket_ = listen_at(at->get(), at->size, port);
  } else {
    errno = EADDRNOTAVAIL;
  }
  if (!socket_.is_open())
    throw Error(ErrorCategory::communication, "network",
                port == 0 ? fmt::format("expected a TCP port of {} to listen on", address)
                          : fmt::format("expected TCP port {} to listen on", port),
                std::generic_category().message(errno));
  port_ = port_of(socket_);
}

Listener::Listener(FileDescriptor socket) : socket_(std::move(socket)), port_(port_of(socket_)) {
  ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
}

FileDescriptor Listener::accept() const {
  return FileDescriptor(accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

FileDescriptor tcp_socket(int family) {
  FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.is_open()) set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  return socket;
}

void set_keepalive_timeout(const FileDescriptor& socket, std::chrono::seconds timeout) {
  const auto interval =
      static_cast<int>(std::clamp<std::int64_t>(timeout.count() / kProbes, 1, kMaxProbeSeconds));
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, interval);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, interval);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  // The timeout for unacknowledged data and for keep-alive probes.
  const auto limit =
      std::clamp<std::int64_t>(std::chrono::milliseconds(timeout).count(), 1000, INT32_MAX);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(limit));
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

std::string peer_address(const FileDescriptor& socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (getpeername(socket.get(), address, &size) != 0) return "";
  const std::string text = numeric_address(address);
  return text.starts_with(kMappedPrefix) ? text.substr(kMappedPrefix.size()) : text;
}

}  // namespace lockstep::inline v0::net
