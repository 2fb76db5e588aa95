// One end of a stream of messages that never makes its owner wait.
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
  /// `socket`: connected, non-blocking.
  explicit Connection(net::FileDescriptor socket) : socket_(std::move(socket)) {}

  /// What to poll for.
  pollfd interest() const;

  /// Hands over as much as the system takes; the rest goes with later calls.
  void send(const Message& message);
  void flush();
  bool is_flushed() const { return outgoing_.empty(); }

  /// What has arrived, in order, out of at most 64 KiB: poll for more. Finds out whether the other end has closed.
  std::vector<Message> receive();
  bool is_open() const { return socket_.is_open(); }
  /// Why it is not open, for people: "its connection closed".
  const std::string& reason() const { return reason_; }

  /// Says that nothing more will be sent; the other end reads what is under way, then an end.
  void finish_sending();
  void close(std::string reason);

 private:
  net::FileDescriptor socket_;
  MessageReader reader_;
  std::string outgoing_;
  bool deaf_ = false;  // the other end takes nothing any more; there may still be something to read
  std::string reason_;
};

/// Sends and reads on all of `connections` until each is closed by its other end, or until `limit`. What comes in is
/// dropped: this is for the last word.
void send_last_words(std::vector<Connection*> connections, const Message& message, std::chrono::milliseconds limit);

}  // namespace lockstep::allreduce
