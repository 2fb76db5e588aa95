// A TCP connection that carries frames.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "apps/lockstep/launch/frame.h"
#include "lockstep/net/socket.h"

namespace lockstep::apps::launch {

/// Whose other end has proved that it is of the job (lockstep/net/authentication.h). Neither call waits; poll for
/// `interest` between them.
class Link {
 public:
  Link() = default;
  /// `socket`: connected and non-blocking. A host that does not answer for `stall_timeout` counts as lost.
  Link(net::FileDescriptor socket, std::chrono::seconds stall_timeout);

  bool is_open() const { return socket_.is_open(); }
  /// Why it is not open: "its connection closed".
  const std::string& reason() const { return reason_; }
  pollfd interest() const;

  void send(const Frame& frame);
  /// Sends what has been left over, and returns what has arrived, out of at most 64 KiB: poll for more.
  std::vector<Frame> receive();
  void close(const std::string& reason);

  /// The numeric address of the other end.
  std::string peer() const;

 private:
  void send_more();

  net::FileDescriptor socket_;
  FrameReader reader_;
  std::string outgoing_;
  std::size_t sent_ = 0;  // of what is to go out
  std::string reason_;
};

}  // namespace lockstep::apps::launch
