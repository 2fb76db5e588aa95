// The order in which the segments of a buffer pass from GPUs to the wire and back, so that all three are busy.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <vector>

#include "lockstep/allreduce/reduction.h"
#include "lockstep/allreduce/transport/message_buffers.h"

namespace lockstep::allreduce {

/// What happens to a segment: it is reduced in the node and copied down to the host, crosses the wire, and is copied up
/// and brought to all of the node. The GPU does the first and the last when told to, in this order; the host does the
/// middle itself, and waits for that segment's first stage before.
enum class SegmentStage { down, across, up };

struct SegmentStep {
  SegmentStage stage = SegmentStage::down;
  std::size_t segment = 0;
  std::size_t slot = 0;  ///< of the staging memory on the host
};

/// Three slots keep all busy: while the host has a segment on the wire, the GPU brings the one before up and the one
/// after down.
constexpr std::size_t kSegmentSlots = 3;

/// The steps of `segments` segments on kSegmentSlots slots. A slot is given to a segment only after its last one has
/// been told to go up.
std::vector<SegmentStep> schedule_segments(std::size_t segments);

std::size_t segments_of(const Values& values, std::size_t segment_bytes);
/// Segment `index` of `values`; `segment_bytes` is a multiple of 64.
Values segment_of(const Values& values, std::size_t segment_bytes, std::size_t index);

// The way of one buffer round a ring of ranks.

/// One all-reduce, reduce-scatter or all-gather under way, which advance() carries on.
///
/// Its slots are numbered in the order in which they travel: slot t is segment t % segments_ of the chunk of step
/// t / segments_. What is received in slot t is sent on in slot t + segments_. The first half of the slots is the
/// reduce-scatter, the second the all-gather.
///
/// Values in a buffer that is kept for MPI travel from and to their places. Others are copied through slots segment by
/// segment: the caller may free them as soon as it gives up, whatever messages are still in flight then.
class RingReduction {
 public:
  enum class Part { all, reduce_scatter, all_gather };

  static constexpr std::size_t kInFlight = 4;  ///< segments, each way

  /// `segment_bytes` is a multiple of 64. `buffers` outlives this object and serves one reduction at a time. `op` does
  /// not matter to an all-gather.
  RingReduction(MPI_Comm comm, const Values& values, ReduceOp op, Part part, std::size_t segment_bytes,
                MessageBuffers& buffers);

  /// Does what can be done without waiting; true if there was anything.
  bool advance();
  bool is_done() const { return status_ != MPI_SUCCESS || (sends_done_ == slots_ && receives_done_ == slots_); }
  /// The first error of MPI, if any.
  int status() const { return status_; }

 private:
  std::size_t segment_elements() const { return segment_bytes_ / bytes_per_element(values_.type); }
  Slice segment_of(std::size_t slot, int chunks_behind) const;
  Slice sent_in(std::size_t slot) const { return segment_of(slot, 0); }
  Slice received_in(std::size_t slot) const { return segment_of(slot, 1); }
  std::byte* at(std::size_t element) const { return values_.data + element * bytes_per_element(values_.type); }
  int bytes_of(Slice slice) const;
  static std::size_t receive_buffer(std::size_t slot) { return slot % kInFlight; }
  static std::size_t send_buffer(std::size_t slot) { return kInFlight + slot % kInFlight; }
  bool goes_to_place(std::size_t slot) const { return is_kept_ && !is_reduced(slot); }
  bool is_reduced(std::size_t slot) const { return slot < reduce_slots_; }

  bool may_receive() const;
  bool may_send() const;
  void post_receive();
  void post_send();
  void take_received();
  bool is_complete(MPI_Request& request);
  void keep(int status);

  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
  Values values_;
  ReduceOp op_;
  MessageBuffers& buffers_;
  bool is_kept_;  // the values are in a buffer that outlives all messages
  std::size_t segment_bytes_;
  std::size_t segments_ = 0;      // of the largest chunk
  std::size_t reduce_slots_ = 0;  // slots of the reduce-scatter; as many of the all-gather follow
  std::size_t first_ = 0;         // the slot to begin with
  std::size_t slots_ = 0;         // the slot to end before
  std::size_t receives_posted_ = 0;
  std::size_t receives_done_ = 0;
  std::size_t sends_posted_ = 0;
  std::size_t sends_done_ = 0;
  int status_ = MPI_SUCCESS;
};

}  // namespace lockstep::allreduce
