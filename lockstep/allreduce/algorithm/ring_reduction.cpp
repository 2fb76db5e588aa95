#include "lockstep/allreduce/algorithm/ring_reduction.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep::inline v0::allreduce {

RingReduction::RingReduction(Transport& transport, const Values& values, ReduceOp op, Part part,
                             const RingOptions& options, MessageBuffers& buffers,
                             std::vector<Slice> chunks)
    : transport_(transport),
      rank_(transport.rank()),
      size_(transport.size()),
      values_(values),
      op_(op),
      buffers_(buffers),
      chunks_(std::move(chunks)),
      is_kept_(buffers.keeps(values.data, bytes_of(values))),
      segment_bytes_(options.segment_bytes),
      in_flight_(options.segments_in_flight) {
  buffers_.reserve(2 * in_flight_, segment_bytes_);
  if (chunks_.empty())
    for (int chunk = 0; chunk < size_; ++chunk)
      chunks_.push_back(slice_of(values.count, values.type, size_, chunk));
  std::size_t largest = 0;
  for (const Slice& chunk : chunks_) largest = std::max(largest, chunk.end - chunk.begin);
  segments_ = std::max<std::size_t>(1, (largest + segment_elements() - 1) / segment_elements());
  reduce_slots_ = static_cast<std::size_t>(size_ - 1) * segments_;
  first_ = part == Part::all_gather ? reduce_slots_ : 0;
  slots_ = part == Part::reduce_scatter ? reduce_slots_ : 2 * reduce_slots_;
  receives_posted_ = receives_done_ = sends_posted_ = sends_done_ = first_;
}

bool RingReduction::advance(bool are_compared) {
  const std::size_t before = sends_done_ + sends_posted_ + receives_done_ + receives_posted_;
  while (sends_done_ < sends_posted_ && transport_.poll(buffers_.message(send_buffer(sends_done_))))
    ++sends_done_;
  while (may_receive()) post_receive();
  if (receives_done_ < receives_posted_ &&
      transport_.poll(buffers_.message(receive_buffer(receives_done_))))
    process_received();
  while (may_send(are_compared)) post_send();
  return sends_done_ + sends_posted_ + receives_done_ + receives_posted_ != before;
}

// In step s a rank sends chunk rank - 1 - s and receives chunk rank - 2 - s, modulo n. After n - 1
// steps its own chunk is complete.
Slice RingReduction::segment_of(std::size_t slot, int chunks_behind) const {
  const int step = static_cast<int>(slot / segments_) + chunks_behind;
  const int chunk = ((rank_ - 1 - step) % size_ + size_) % size_;
  const Slice slice = chunks_[static_cast<std::size_t>(chunk)];
  const std::size_t begin =
      std::min(slice.end, slice.begin + slot % segments_ * segment_elements());
  return {begin, std::min(slice.end, begin + segment_elements())};
}

std::span<std::byte> RingReduction::memory_of(Slice slice) const {
  const std::size_t width = bytes_per_element(values_.type);
  return {values_.data + slice.begin * width, (slice.end - slice.begin) * width};
}

bool RingReduction::may_receive() const {
  if (receives_posted_ == slots_ || receives_posted_ - receives_done_ == in_flight_) return false;
  // A complete segment overwrites the partial one that was sent n - 1 steps ago; that send must be
  // complete.
  return !is_received_in_place(receives_posted_) || sends_done_ > receives_posted_ - reduce_slots_;
}

bool RingReduction::may_send(bool are_compared) const {
  if (!are_compared && sends_posted_ == first_ + in_flight_) return false;
  if (sends_posted_ == slots_ || sends_posted_ - sends_done_ == in_flight_) return false;
  return sends_posted_ < first_ + segments_ || receives_done_ > sends_posted_ - segments_;
}

// Both ends know which segments are empty and skip their messages.
void RingReduction::post_receive() {
  const std::size_t slot = receives_posted_++;
  std::span<std::byte> memory = memory_of(received_in(slot));
  if (memory.empty()) return;
  const std::size_t buffer = receive_buffer(slot);
  if (!is_received_in_place(slot)) memory = buffers_.memory(buffer).first(memory.size());
  buffers_.message(buffer) = transport_.receive((rank_ + size_ - 1) % size_, Tag::values, memory);
}

void RingReduction::post_send() {
  const std::size_t slot = sends_posted_++;
  std::span<std::byte> memory = memory_of(sent_in(slot));
  if (memory.empty()) return;
  const std::size_t buffer = send_buffer(slot);
  if (!is_kept_) {
    std::memcpy(buffers_.slot(buffer), memory.data(), memory.size());
    memory = buffers_.memory(buffer).first(memory.size());
  }
  buffers_.message(buffer) = transport_.send((rank_ + 1) % size_, Tag::values, memory);
}

void RingReduction::process_received() {
  const std::size_t slot = receives_done_++;
  const Slice slice = received_in(slot);
  if (slice.begin == slice.end || is_received_in_place(slot)) return;
  const std::span<std::byte> into = memory_of(slice);
  const std::byte* received = buffers_.slot(receive_buffer(slot));
  if (is_reduced(slot))
    reduce_into(into.data(), received, slice.end - slice.begin, values_.type, op_);
  else
    // Overwrites the partial segment, which has been sent.
    std::memcpy(into.data(), received, into.size());
}

}  // namespace lockstep::inline v0::allreduce
