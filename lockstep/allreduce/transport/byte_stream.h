// Messages as a stream of bytes between two members, in both directions. It has no connection: the
// owner moves the bytes, over TCP or in a simulation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/allreduce/transport/transport.h"

namespace lockstep::inline v0::allreduce {

/// What precedes the bytes of a message.
struct MessageHeader {
  static constexpr std::size_t kBytes = 48;

  std::uint64_t job = 0;         ///< a number, equal in all processes of a job
  std::uint32_t generation = 0;  ///< how often the job has changed its members
  Tag tag = Tag::call;
  std::uint64_t context = 0;   ///< the set of members that the message belongs to
  std::uint64_t sequence = 0;  ///< the message's number among those to one member
  std::uint64_t bytes = 0;

  std::array<std::byte, kBytes> encode() const;
  /// Throws Error (communication) for bytes that no process of this version has sent.
  static MessageHeader decode(std::span<const std::byte, kBytes> bytes);
};

/// The bytes to send: messages in the order in which they were added, which are not copied.
class OutgoingBytes {
 public:
  /// Adds a message; `bytes` stay valid until sent() has returned `id`.
  void add(const MessageHeader& header, std::span<const std::byte> bytes, std::uint64_t id);
  bool is_empty() const { return queue_.empty(); }
  /// The next bytes, in at most `most` parts.
  std::vector<std::span<const std::byte>> next(std::size_t most) const;
  /// `bytes` of them have been sent. Returns the messages that are complete.
  std::vector<std::uint64_t> sent(std::size_t bytes);

 private:
  struct Entry {
    std::array<std::byte, MessageHeader::kBytes> header;
    std::span<const std::byte> bytes;
    std::uint64_t id;
  };

  std::deque<Entry> queue_;
  std::size_t done_ = 0;  // bytes of the first message that have been sent
};

/// Where arriving messages go.
class MessageSink {
 public:
  virtual ~MessageSink() = default;
  /// The memory for a message of `from`; the bytes that it has no room for are dropped. nullopt:
  /// not now, ask again when a receive was posted. Throws Error (communication) for a message that
  /// must not arrive.
  virtual std::optional<std::span<std::byte>> begin(int from, const MessageHeader& header) = 0;
  /// The message that began last has arrived.
  virtual void end(int from) = 0;
};

/// The bytes that arrive from one member.
class IncomingBytes {
 public:
  IncomingBytes(int from, MessageSink& sink) : from_(from), sink_(sink) {}

  /// Where the next bytes go; empty while the sink has no memory for the message. Throws what the
  /// sink throws, and for a header that is wrong.
  std::span<std::byte> next();
  /// `bytes` have been written there.
  void received(std::size_t bytes);

 private:
  int from_;
  MessageSink& sink_;
  std::array<std::byte, MessageHeader::kBytes> header_{};
  bool has_begun_ = false;       // the sink knows the message that is arriving
  std::uint64_t filled_ = 0;     // bytes of the header, or of the message
  std::uint64_t bytes_ = 0;      // bytes of the message
  std::span<std::byte> memory_;  // for the message that is arriving
  std::array<std::byte, 4096> dropped_{};
  std::uint64_t sequence_ = 0;  // the next message's
};

}  // namespace lockstep::inline v0::allreduce
