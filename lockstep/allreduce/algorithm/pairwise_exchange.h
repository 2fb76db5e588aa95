// All-to-all: every member sends a part to every other one.
//
// In step s a member sends to the one that is s after it, and receives from the one s before it, so
// that in each step everybody sends to one member and receives from one. (Thakur, Rabenseifner and
// Gropp, 2005, "pairwise exchange".) A part is sent in segments; the next step begins when the
// parts of this one have arrived.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/allreduce/algorithm/ring_reduction.h"
#include "lockstep/allreduce/transport/message_buffers.h"
#include "lockstep/allreduce/transport/transport.h"

namespace lockstep::inline v0::allreduce {

/// One exchange in progress, driven by advance(), which throws the errors of the transport. All
/// bytes are copied through buffer slots, so the caller may free them when it abandons it.
class PairwiseExchange {
 public:
  /// sent[i] goes to member i; received[i] has the size of what it sends. All outlive this object.
  PairwiseExchange(Transport& transport, std::span<const std::span<const std::byte>> sent,
                   std::span<std::vector<std::byte>> received, const RingOptions& options,
                   MessageBuffers& buffers);

  /// Makes progress without waiting; returns whether it made any.
  bool advance();
  bool is_done() const { return step_ == size_; }

 private:
  /// One direction of a step: segments posted and complete, in order.
  struct Stream {
    std::size_t posted = 0;
    std::size_t done = 0;
  };

  std::size_t segments_of(std::size_t bytes) const;
  std::span<const std::byte> to_send() const;
  std::span<std::byte> to_receive();
  bool advance_sends();
  bool advance_receives();

  Transport& transport_;
  std::span<const std::span<const std::byte>> sent_;
  std::span<std::vector<std::byte>> received_;
  MessageBuffers& buffers_;
  std::size_t segment_bytes_;
  std::size_t in_flight_;
  int size_;
  int step_ = 1;
  Stream sends_;
  Stream receives_;
};

}  // namespace lockstep::inline v0::allreduce
