// Memory for messages between ranks.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "lockstep/allreduce/transport/transport.h"
#include "lockstep/device/buffer.h"

namespace lockstep::inline v0::allreduce {

/// Memory that a transport may use without a time limit, with the messages in it. It uses no other
/// memory, because messages cannot be canceled (in MPI a matched receive, or any send): a transport
/// accesses their memory until they are complete.
///
/// There are two kinds of memory: slots of this object, with one message at a time in each, and
/// callers' buffers that this object keeps alive (keep()). All other memory is copied through the
/// slots. If messages are in flight at destruction, which happens only after a failure, the memory
/// is leaked. This does not use the transport, so any thread may destroy the object.
class MessageBuffers {
 public:
  MessageBuffers() = default;
  MessageBuffers(const MessageBuffers&) = delete;
  MessageBuffers& operator=(const MessageBuffers&) = delete;
  ~MessageBuffers() = default;

  /// Provides at least `slots` slots of at least `bytes` bytes. Throws CheckFailure while a message
  /// is in flight.
  void reserve(std::size_t slots, std::size_t bytes);

  std::byte* slot(std::size_t index) const {
    return static_cast<std::byte*>(state_->memory.data()) + index * bytes_;
  }
  /// The memory of a slot.
  std::span<std::byte> memory(std::size_t index) const { return {slot(index), bytes_}; }
  /// The message in that slot; empty while none is in flight.
  Message& message(std::size_t index) { return state_->messages[index]; }

  /// Returns `buffer` with memory that outlives the messages of this object. It may outlive this
  /// object.
  device::Buffer keep(device::Buffer buffer);
  /// Whether the `bytes` bytes at `data` are in a kept buffer. Thread-safe.
  bool keeps(const std::byte* data, std::size_t bytes) const;

 private:
  struct State {
    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State();
    bool in_flight() const;

    device::Buffer memory;
    std::vector<Message> messages;
    std::mutex kept_mutex;
    std::map<const std::byte*, std::size_t> kept;  // sizes in bytes by address
  };

  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::size_t bytes_ = 0;  // size of a slot
};

}  // namespace lockstep::inline v0::allreduce
