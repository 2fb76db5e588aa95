// The reduction of one buffer in a ring of ranks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/allreduce/member/reduction.h"
#include "lockstep/allreduce/transport/message_buffers.h"
#include "lockstep/allreduce/transport/transport.h"

namespace lockstep::inline v0::allreduce {

struct RingOptions {
  std::size_t small_bytes = std::size_t{16} << 10;     ///< largest values sent with the call
  std::size_t segment_bytes = std::size_t{256} << 10;  ///< a multiple of 64
  std::size_t segments_in_flight = 4;                  ///< in each direction
};

/// Segments between nodes. Open MPI sends a message of up to 64 KiB (btl_tcp_eager_limit) at
/// once. A larger one waits for an answer, which TCP queues behind the data that the receiver sends
/// itself: two hosts then send in turn, at half the speed of the link.
inline constexpr RingOptions kRingBetweenNodes{.segment_bytes = std::size_t{60} << 10,
                                               .segments_in_flight = 16};

/// One all-reduce, reduce-scatter or all-gather in progress, driven by advance(), which throws the
/// errors of the transport. Chunk r is the one that member r completes, or has from the start of an
/// all-gather. A broadcast is an all-gather in which the other members have nothing: a chain of
/// messages from the root on.
///
/// Slots are numbered in the order of sending: slot t is segment t % segments_ of the chunk of step
/// t / segments_. Data received in slot t is sent on in slot t + segments_. The first half of the
/// slots is the reduce-scatter, the second half the all-gather.
///
/// Values in a buffer that is kept for messages are sent and received in place. Other values are
/// copied through buffer slots in segments, so the caller may free them when it abandons the
/// operation, even with messages in flight.
class RingReduction {
 public:
  enum class Part { all, reduce_scatter, all_gather };

  /// `transport` and `buffers` outlive this object; `buffers` are used by one reduction at a time.
  /// `op` is ignored by an all-gather. `chunks`: one for each member, if not those of slice_of().
  RingReduction(Transport& transport, const Values& values, ReduceOp op, Part part,
                const RingOptions& options, MessageBuffers& buffers,
                std::vector<Slice> chunks = {});

  /// Makes progress without waiting; returns whether it made any. Until the members have compared
  /// their calls, sends only as much as can wait on a member that does not receive it, because its
  /// call differs: the comparison must not wait behind it.
  bool advance(bool are_compared = true);
  bool is_done() const { return sends_done_ == slots_ && receives_done_ == slots_; }

 private:
  std::size_t segment_elements() const { return segment_bytes_ / bytes_per_element(values_.type); }
  Slice segment_of(std::size_t slot, int chunks_behind) const;
  Slice sent_in(std::size_t slot) const { return segment_of(slot, 0); }
  Slice received_in(std::size_t slot) const { return segment_of(slot, 1); }
  std::span<std::byte> memory_of(Slice slice) const;
  std::size_t receive_buffer(std::size_t slot) const { return slot % in_flight_; }
  std::size_t send_buffer(std::size_t slot) const { return in_flight_ + slot % in_flight_; }
  bool is_received_in_place(std::size_t slot) const { return is_kept_ && !is_reduced(slot); }
  bool is_reduced(std::size_t slot) const { return slot < reduce_slots_; }

  bool may_receive() const;
  bool may_send(bool are_compared) const;
  void post_receive();
  void post_send();
  void process_received();

  Transport& transport_;
  int rank_;
  int size_;
  Values values_;
  ReduceOp op_;
  MessageBuffers& buffers_;
  std::vector<Slice> chunks_;
  bool is_kept_;  // the values are in a buffer that outlives all messages
  std::size_t segment_bytes_;
  std::size_t in_flight_;         // segments in each direction
  std::size_t segments_ = 0;      // in the largest chunk
  std::size_t reduce_slots_ = 0;  // slots of the reduce-scatter, and of the all-gather after it
  std::size_t first_ = 0;         // the first slot
  std::size_t slots_ = 0;         // one past the last slot
  std::size_t receives_posted_ = 0;
  std::size_t receives_done_ = 0;
  std::size_t sends_posted_ = 0;
  std::size_t sends_done_ = 0;
};

}  // namespace lockstep::inline v0::allreduce
