#include "lockstep/allreduce/algorithm/ring_reduction.h"

#include <algorithm>
#include <cstring>

namespace lockstep::inline v0::allreduce {
namespace {

constexpr int kRingTag = 1;

}  // namespace

RingReduction::RingReduction(MPI_Comm comm, const Values& values, ReduceOp op, Part part,
                             const RingOptions& options, MessageBuffers& buffers)
    : comm_(comm),
      values_(values),
      op_(op),
      buffers_(buffers),
      is_kept_(buffers.keeps(values.data, lockstep::allreduce::bytes_of(values))),
      segment_bytes_(options.segment_bytes),
      in_flight_(options.segments_in_flight) {
  buffers_.reserve(2 * in_flight_, segment_bytes_);
  MPI_Comm_rank(comm, &rank_);
  MPI_Comm_size(comm, &size_);
  std::size_t largest = 0;
  for (int chunk = 0; chunk < size_; ++chunk) {
    const Slice slice = slice_of(values.count, values.type, size_, chunk);
    largest = std::max(largest, slice.end - slice.begin);
  }
  segments_ = std::max<std::size_t>(1, (largest + segment_elements() - 1) / segment_elements());
  reduce_slots_ = static_cast<std::size_t>(size_ - 1) * segments_;
  first_ = part == Part::all_gather ? reduce_slots_ : 0;
  slots_ = part == Part::reduce_scatter ? reduce_slots_ : 2 * reduce_slots_;
  receives_posted_ = receives_done_ = sends_posted_ = sends_done_ = first_;
}

bool RingReduction::advance() {
  const std::size_t before = sends_done_ + sends_posted_ + receives_done_ + receives_posted_;
  while (sends_done_ < sends_posted_ && is_complete(buffers_.request(send_buffer(sends_done_))))
    ++sends_done_;
  while (may_receive()) post_receive();
  if (receives_done_ < receives_posted_ &&
      is_complete(buffers_.request(receive_buffer(receives_done_))))
    process_received();
  while (may_send()) post_send();
  return sends_done_ + sends_posted_ + receives_done_ + receives_posted_ != before;
}

// In step s a rank sends chunk rank - 1 - s and receives chunk rank - 2 - s, modulo n. After n - 1
// steps its own chunk is complete.
Slice RingReduction::segment_of(std::size_t slot, int chunks_behind) const {
  const int step = static_cast<int>(slot / segments_) + chunks_behind;
  const int chunk = ((rank_ - 1 - step) % size_ + size_) % size_;
  const Slice slice = slice_of(values_.count, values_.type, size_, chunk);
  const std::size_t begin =
      std::min(slice.end, slice.begin + slot % segments_ * segment_elements());
  return {begin, std::min(slice.end, begin + segment_elements())};
}

int RingReduction::bytes_of(Slice slice) const {
  return static_cast<int>((slice.end - slice.begin) * bytes_per_element(values_.type));
}

bool RingReduction::may_receive() const {
  if (status_ != MPI_SUCCESS || receives_posted_ == slots_ ||
      receives_posted_ - receives_done_ == in_flight_)
    return false;
  // A complete segment overwrites the partial one that was sent n - 1 steps ago; that send must be
  // complete.
  return !is_received_in_place(receives_posted_) || sends_done_ > receives_posted_ - reduce_slots_;
}

bool RingReduction::may_send() const {
  if (status_ != MPI_SUCCESS || sends_posted_ == slots_ ||
      sends_posted_ - sends_done_ == in_flight_)
    return false;
  return sends_posted_ < first_ + segments_ || receives_done_ > sends_posted_ - segments_;
}

// Both ends know which segments are empty and skip their messages.
void RingReduction::post_receive() {
  const std::size_t slot = receives_posted_++;
  const Slice slice = received_in(slot);
  if (slice.begin == slice.end) return;
  const std::size_t buffer = receive_buffer(slot);
  std::byte* to = is_received_in_place(slot) ? at(slice.begin) : buffers_.slot(buffer);
  record(MPI_Irecv(to, bytes_of(slice), MPI_BYTE, (rank_ + size_ - 1) % size_, kRingTag, comm_,
                   &buffers_.request(buffer)));
}

void RingReduction::post_send() {
  const std::size_t slot = sends_posted_++;
  const Slice slice = sent_in(slot);
  if (slice.begin == slice.end) return;
  const std::size_t buffer = send_buffer(slot);
  std::byte* from = is_kept_ ? at(slice.begin) : buffers_.slot(buffer);
  if (!is_kept_) std::memcpy(from, at(slice.begin), static_cast<std::size_t>(bytes_of(slice)));
  record(MPI_Isend(from, bytes_of(slice), MPI_BYTE, (rank_ + 1) % size_, kRingTag, comm_,
                   &buffers_.request(buffer)));
}

void RingReduction::process_received() {
  const std::size_t slot = receives_done_++;
  const Slice slice = received_in(slot);
  if (slice.begin == slice.end || is_received_in_place(slot)) return;
  const std::byte* received = buffers_.slot(receive_buffer(slot));
  if (is_reduced(slot))
    reduce_into(at(slice.begin), received, slice.end - slice.begin, values_.type, op_);
  else
    // Overwrites the partial segment, which has been sent.
    std::memcpy(at(slice.begin), received, static_cast<std::size_t>(bytes_of(slice)));
}

bool RingReduction::is_complete(MPI_Request& request) {
  if (request == MPI_REQUEST_NULL) return true;
  int complete = 0;
  record(MPI_Test(&request, &complete, MPI_STATUS_IGNORE));
  return complete != 0 && status_ == MPI_SUCCESS;
}

void RingReduction::record(int status) {
  if (status_ == MPI_SUCCESS) status_ = status;
}

}  // namespace lockstep::inline v0::allreduce
