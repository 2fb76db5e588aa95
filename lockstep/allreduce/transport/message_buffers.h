// The memory of messages between ranks.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/device/buffer.h"

namespace lockstep::allreduce {

/// Memory that MPI may keep for as long as it likes, with the requests of its messages. Nothing else is handed to MPI:
/// a message cannot be taken back once its other end has found it (a send never can), and until it is complete MPI
/// reads or writes its memory, however long the other rank takes.
///
/// That memory is of two kinds: slots of this object, one message at a time in each, and buffers of callers that this
/// object keeps (keep()). Whatever else a caller has is copied through the slots. Where messages are in flight when the
/// memory goes, which only happens after a failure, it is left to MPI until the process ends. That takes no call of
/// MPI, so that memory may go on any thread.
class MessageBuffers {
 public:
  MessageBuffers() = default;
  MessageBuffers(const MessageBuffers&) = delete;
  MessageBuffers& operator=(const MessageBuffers&) = delete;
  ~MessageBuffers() = default;

  /// At least `slots` slots of at least `bytes` bytes. Throws CheckFailure while a message is in flight.
  void reserve(std::size_t slots, std::size_t bytes);

  std::byte* slot(std::size_t index) const { return static_cast<std::byte*>(state_->memory.data()) + index * bytes_; }
  /// MPI_REQUEST_NULL while nothing is in flight in that slot. Those of neighbouring slots are neighbours.
  MPI_Request& request(std::size_t index) { return state_->requests[index]; }

  /// `buffer`, whose memory now outlives the messages of this object. May outlive this object.
  device::Buffer keep(device::Buffer buffer);
  /// Whether the `bytes` bytes at `data` are in a buffer that is kept. Any thread.
  bool keeps(const std::byte* data, std::size_t bytes) const;

 private:
  struct State {
    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State();
    bool in_flight() const;

    device::Buffer memory;
    std::vector<MPI_Request> requests;
    std::mutex kept_mutex;
    std::map<const std::byte*, std::size_t> kept;  // where buffers begin, and their bytes
  };

  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::size_t bytes_ = 0;  // of a slot
};

}  // namespace lockstep::allreduce
