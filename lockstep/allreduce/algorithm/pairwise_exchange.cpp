#include "lockstep/allreduce/algorithm/pairwise_exchange.h"

#include <algorithm>
#include <cstring>

namespace lockstep::inline v0::allreduce {

PairwiseExchange::PairwiseExchange(Transport& transport,
                                   std::span<const std::span<const std::byte>> sent,
                                   std::span<std::vector<std::byte>> received,
                                   const RingOptions& options, MessageBuffers& buffers)
    : transport_(transport),
      sent_(sent),
      received_(received),
      buffers_(buffers),
      segment_bytes_(options.segment_bytes),
      in_flight_(options.segments_in_flight),
      size_(transport.size()) {
  buffers_.reserve(2 * in_flight_, segment_bytes_);
}

std::size_t PairwiseExchange::segments_of(std::size_t bytes) const {
  return (bytes + segment_bytes_ - 1) / segment_bytes_;
}

std::span<const std::byte> PairwiseExchange::to_send() const {
  return sent_[static_cast<std::size_t>((transport_.rank() + step_) % size_)];
}

std::span<std::byte> PairwiseExchange::to_receive() {
  return received_[static_cast<std::size_t>((transport_.rank() + size_ - step_) % size_)];
}

bool PairwiseExchange::advance() {
  if (is_done()) return false;
  const bool has_sent = advance_sends();
  const bool has_received = advance_receives();
  if (sends_.done == segments_of(to_send().size()) &&
      receives_.done == segments_of(to_receive().size())) {
    ++step_;
    sends_ = receives_ = {};
    return true;
  }
  return has_sent || has_received;
}

bool PairwiseExchange::advance_sends() {
  const Stream before = sends_;
  const std::span<const std::byte> bytes = to_send();
  while (sends_.done < sends_.posted &&
         transport_.poll(buffers_.message(in_flight_ + sends_.done % in_flight_)))
    ++sends_.done;
  while (sends_.posted < segments_of(bytes.size()) && sends_.posted - sends_.done < in_flight_) {
    const std::size_t slot = in_flight_ + sends_.posted % in_flight_;
    const std::size_t begin = sends_.posted++ * segment_bytes_;
    const auto segment = bytes.subspan(begin, std::min(segment_bytes_, bytes.size() - begin));
    std::memcpy(buffers_.slot(slot), segment.data(), segment.size());
    buffers_.message(slot) = transport_.send((transport_.rank() + step_) % size_, Tag::values,
                                             buffers_.memory(slot).first(segment.size()));
  }
  return sends_.posted != before.posted || sends_.done != before.done;
}

bool PairwiseExchange::advance_receives() {
  const Stream before = receives_;
  const std::span<std::byte> bytes = to_receive();
  const auto segment_of = [&](std::size_t segment) {
    const std::size_t begin = segment * segment_bytes_;
    return bytes.subspan(begin, std::min(segment_bytes_, bytes.size() - begin));
  };
  while (receives_.done < receives_.posted &&
         transport_.poll(buffers_.message(receives_.done % in_flight_))) {
    const std::span<std::byte> into = segment_of(receives_.done);
    std::memcpy(into.data(), buffers_.slot(receives_.done++ % in_flight_), into.size());
  }
  while (receives_.posted < segments_of(bytes.size()) &&
         receives_.posted - receives_.done < in_flight_) {
    const std::size_t slot = receives_.posted % in_flight_;
    const std::size_t size = segment_of(receives_.posted++).size();
    buffers_.message(slot) = transport_.receive((transport_.rank() + size_ - step_) % size_,
                                                Tag::values, buffers_.memory(slot).first(size));
  }
  return receives_.posted != before.posted || receives_.done != before.done;
}

}  // namespace lockstep::inline v0::allreduce
