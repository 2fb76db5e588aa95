// Messages between the tasks of a launch, and their encoding in a byte stream.
#pragma once

#include <poll.h>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/net/socket.h"

namespace lockstep::apps::launch {

enum class FrameKind : char {
  arrive = 'A',   ///< to the first task: request to join (JoinRequest)
  welcome = 'W',  ///< reply: accepted
  refuse = 'R',   ///< reply: exit with a status and a message
  probe = 'P',    ///< to a host: try to reach these hosts (reach.h)
  probed = 'Q',   ///< reply: the hosts that it cannot reach
  call = 'C',     ///< from an agent of mpirun: start the daemon of a host
  run = 'X',      ///< to a host: start its daemon (daemon.h)
  output = 'O',   ///< reply: the daemon's standard output
  errors = 'E',   ///< reply: the daemon's standard error
  started = 'T',  ///< reply: MPI ranks have been seen on the host
  ended = 'Z',    ///< reply: the daemon's exit status
  signal = 'S',   ///< to the first task: a signal that another task received
  leave = 'L',    ///< to all: the job has ended, with this exit status
};

struct Frame {
  FrameKind kind = FrameKind::leave;
  std::string text = {};
};

/// The length of the text in four bytes, little-endian; the kind; the text.
std::string encode(const Frame& frame);

/// Splits a byte stream into frames.
class FrameReader {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }
  /// The next complete frame.
  std::optional<Frame> next();
  /// Whether the stream is invalid; next() then returns nothing.
  bool is_broken() const { return broken_; }

 private:
  std::string bytes_;
  std::size_t begin_ = 0;  // of the bytes that have not been returned
  bool broken_ = false;
};

// A TCP connection that carries frames.

/// A connection to an authenticated peer (lockstep/net/authentication.h). send() and receive() do not block; poll
/// interest() between calls.
class Link {
 public:
  Link() = default;
  /// `socket`: connected and non-blocking. The connection breaks if the peer does not respond for `stall_timeout`.
  Link(net::FileDescriptor socket, std::chrono::seconds stall_timeout);

  bool is_open() const { return socket_.is_open(); }
  /// Why it is closed, for example "its connection closed".
  const std::string& reason() const { return reason_; }
  pollfd interest() const;

  void send(const Frame& frame);
  /// Sends pending data and returns the frames that have arrived. Reads at most 64 KiB; poll for more.
  std::vector<Frame> receive();
  void close(const std::string& reason);

  /// The numeric address of the peer.
  std::string peer() const;

 private:
  void send_more();

  net::FileDescriptor socket_;
  FrameReader reader_;
  std::string outgoing_;
  std::size_t sent_ = 0;  // bytes of outgoing_ that were sent
  std::string reason_;
};

}  // namespace lockstep::apps::launch
