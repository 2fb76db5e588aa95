// The memory of messages between ranks.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "device/buffer.h"

namespace lockstep::allreduce {

/// Slots that MPI sends from and receives into, one message at a time in each, with their requests. Nothing else is
/// handed to MPI: a message cannot be taken back once its other end has found it (a send never can), and until it is
/// complete MPI reads or writes its memory, however long the other rank takes.
///
/// The destructor calls nothing of MPI, so that it is safe on any thread. Where messages are in flight, which only
/// happens after a failure, their memory and requests are left to MPI until the process ends.
class MessageBuffers {
 public:
  MessageBuffers() = default;
  MessageBuffers(const MessageBuffers&) = delete;
  MessageBuffers& operator=(const MessageBuffers&) = delete;
  ~MessageBuffers();

  /// At least `slots` slots of at least `bytes` bytes. Throws CheckFailure while a message is in flight.
  void reserve(std::size_t slots, std::size_t bytes);

  std::byte* slot(std::size_t index) const { return static_cast<std::byte*>(state_->memory.data()) + index * bytes_; }
  /// MPI_REQUEST_NULL while nothing is in flight in that slot. Those of neighbouring slots are neighbours.
  MPI_Request& request(std::size_t index) { return state_->requests[index]; }

 private:
  struct State {
    device::Buffer memory;
    std::vector<MPI_Request> requests;
  };

  bool in_flight() const;

  std::unique_ptr<State> state_ = std::make_unique<State>();
  std::size_t bytes_ = 0;  // of a slot
};

}  // namespace lockstep::allreduce
