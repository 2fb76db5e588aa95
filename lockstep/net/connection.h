// A TCP connection that carries frames: messages of a kind and a body, with limits on the memory
// that a peer can occupy.
#pragma once

#include <poll.h>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/net/socket.h"

namespace lockstep::inline v0::net {

/// An enumeration of the kinds of frames of one protocol.
template <typename T>
concept FrameKinds = std::same_as<std::underlying_type_t<T>, std::uint8_t>;

/// A message between two processes.
class Frame {
 public:
  template <FrameKinds Kind>
  Frame(Kind kind,
        std::string text = {})  // NOLINT(google-explicit-constructor): send(Kind::welcome)
      : body(std::move(text)), kind_(static_cast<std::uint8_t>(kind)) {}

  template <FrameKinds Kind>
  Kind kind() const {
    return static_cast<Kind>(kind_);
  }
  template <FrameKinds Kind>
  bool is(Kind kind) const {
    return kind_ == static_cast<std::uint8_t>(kind);
  }

  std::string body;

 private:
  friend std::string encode(const Frame& frame);

  std::uint8_t kind_;
};

/// The limits of one protocol. A connection whose peer exceeds them is closed.
struct FrameLimits {
  std::string_view kinds;  ///< the values of its kinds, one per byte
  std::size_t body = 0;    ///< bytes of the longest body
  std::size_t queued = 0;  ///< bytes that wait for a peer that does not read
};

/// The length of the body in four bytes, little-endian; the kind; the body.
std::string encode(const Frame& frame);

/// Splits a byte stream into frames.
class FrameReader {
 public:
  explicit FrameReader(const FrameLimits& limits) : limits_(limits) {}

  void add(std::string_view bytes) { bytes_ += bytes; }
  /// The next complete frame.
  std::optional<Frame> next();
  /// Whether the stream is invalid; next() then returns nothing.
  bool is_broken() const { return broken_; }

 private:
  FrameLimits limits_;
  std::string bytes_;
  std::size_t begin_ = 0;  // offset of the bytes not yet returned
  bool broken_ = false;
};

/// Frames to and from one peer. send() and receive() do not block; poll interest() between calls.
class FrameChannel {
 public:
  virtual ~FrameChannel() = default;

  virtual bool is_open() const = 0;
  /// Why it is not open, human-readable: "its connection closed".
  virtual const std::string& reason() const = 0;
  /// The events to poll for.
  virtual pollfd interest() const = 0;

  /// Sends as much as the system accepts; receive() sends the rest. Throws CheckFailure for a body
  /// longer than the limit.
  virtual void send(const Frame& frame) = 0;
  /// Whether the system has accepted all frames.
  virtual bool is_flushed() const = 0;
  /// Sends queued bytes, returns the frames that have arrived, and detects whether the peer has
  /// closed. Reads at most 64 KiB; poll for more.
  virtual std::vector<Frame> receive() = 0;

  /// Once all frames are sent, shuts down the sending side; the peer reads the data in flight, then
  /// end of file. May be called repeatedly.
  virtual void finish_sending() = 0;
  virtual void close(std::string reason) = 0;
};

/// Frames over a TCP connection.
class Connection final : public FrameChannel {
 public:
  /// Not open.
  Connection() : Connection(FileDescriptor(), FrameLimits()) {}
  /// `socket`: connected and non-blocking, of an authenticated peer (authentication.h).
  Connection(FileDescriptor socket, const FrameLimits& limits);

  bool is_open() const override { return socket_.is_open(); }
  const std::string& reason() const override { return reason_; }
  const FileDescriptor& socket() const { return socket_; }
  pollfd interest() const override;
  void send(const Frame& frame) override;
  bool is_flushed() const override { return outgoing_.empty(); }
  std::vector<Frame> receive() override;
  void finish_sending() override;
  void close(std::string reason) override;

 private:
  void flush();

  FileDescriptor socket_;
  FrameLimits limits_;
  FrameReader reader_;
  std::string outgoing_;
  std::size_t sent_ = 0;       // bytes of outgoing_ that the system has accepted
  bool write_failed_ = false;  // the peer accepts no data; there may still be data to read
  std::string reason_;
};

/// Sends `frame` on all `channels` and waits until each peer has closed, or for `limit`.
/// Received frames are discarded.
void send_last_frame(const std::vector<FrameChannel*>& channels, const Frame& frame,
                     std::chrono::milliseconds limit);

}  // namespace lockstep::inline v0::net
