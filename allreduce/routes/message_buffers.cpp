#include "allreduce/routes/message_buffers.h"

#include <algorithm>

#include "device/error.h"

namespace lockstep::allreduce {

MessageBuffers::~MessageBuffers() {
  if (in_flight()) static_cast<void>(state_.release());
}

bool MessageBuffers::in_flight() const {
  return std::ranges::any_of(state_->requests, [](MPI_Request request) { return request != MPI_REQUEST_NULL; });
}

void MessageBuffers::reserve(std::size_t slots, std::size_t bytes) {
  LOCKSTEP_CHECK(!in_flight());
  if (slots <= state_->requests.size() && bytes <= bytes_) return;
  constexpr std::size_t kCacheLine = 64;
  bytes_ = std::max(bytes_, (bytes + kCacheLine - 1) / kCacheLine * kCacheLine);
  state_->requests.resize(std::max(slots, state_->requests.size()), MPI_REQUEST_NULL);
  state_->memory = device::HostAllocator().allocate(state_->requests.size() * bytes_);
}

}  // namespace lockstep::allreduce
