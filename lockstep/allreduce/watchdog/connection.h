// A non-blocking connection for messages.
#pragma once

#include <poll.h>

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/allreduce/watchdog/message.h"
#include "lockstep/net/socket.h"

namespace lockstep::allreduce {

class Connection {
 public:
  /// `socket` is connected and non-blocking.
  explicit Connection(net::FileDescriptor socket) : socket_(std::move(socket)) {}

  /// The events to poll for.
  pollfd interest() const;

  /// Sends as much as the system accepts; later calls send the rest.
  void send(const Message& message);
  void flush();
  bool is_flushed() const { return outgoing_.empty(); }

  /// Returns received messages in order and detects whether the peer has closed. Reads at most 64 KiB per call: poll
  /// for more.
  std::vector<Message> receive();
  bool is_open() const { return socket_.is_open(); }
  /// Why the connection is not open, human-readable: "its connection closed".
  const std::string& reason() const { return reason_; }

  /// Shuts down the sending side; the peer reads the data in flight, then end of file.
  void finish_sending();
  void close(std::string reason);

 private:
  net::FileDescriptor socket_;
  MessageReader reader_;
  std::string outgoing_;
  bool write_failed_ = false;  // the peer accepts no data; there may still be data to read
  std::string reason_;
};

/// Sends `message` on all `connections` and waits until each peer has closed, or for `limit`. Received messages are
/// discarded.
void send_last_words(std::vector<Connection*> connections, const Message& message, std::chrono::milliseconds limit);

}  // namespace lockstep::allreduce
