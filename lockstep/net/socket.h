// TCP sockets: an owning file descriptor, a listener, and options of connections.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "lockstep/base/system/file_descriptor.h"

namespace lockstep::inline v0::net {

using lockstep::FileDescriptor;

/// A listening TCP socket, non-blocking.
class Listener {
 public:
  /// Listens on all interfaces, IPv6 and IPv4, on `port`; 0: a port that the system chooses. Throws
  /// Error (communication).
  explicit Listener(std::uint16_t port = 0);
  /// Listens on this numeric address only.
  Listener(const std::string& address, std::uint16_t port);
  /// A socket that listens already.
  explicit Listener(FileDescriptor socket);

  int descriptor() const { return socket_.get(); }
  std::uint16_t port() const { return port_; }
  /// Accepts a connection; its socket is non-blocking. Not open, with errno set, if there is none.
  FileDescriptor accept() const;

 private:
  FileDescriptor socket_;
  std::uint16_t port_ = 0;
};

/// A non-blocking TCP socket of `family` that sends small messages without delay. Not open, with
/// errno set, on failure.
FileDescriptor tcp_socket(int family);

/// Breaks the connection if the peer's system does not respond for `timeout`, by keep-alive probes.
void set_keepalive_timeout(const FileDescriptor& socket, std::chrono::seconds timeout);

/// Whether the last call failed with an errno that means to retry later.
bool would_block();

/// The numeric address of the peer; of IPv4 even on an IPv6 socket. Empty if it is not connected.
std::string peer_address(const FileDescriptor& socket);

}  // namespace lockstep::inline v0::net
