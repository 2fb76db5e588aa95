#include "lockstep/allreduce/transport/message_buffers.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"

namespace lockstep::inline v0::allreduce {
namespace {

// Memory that messages may still use when their group has ended.
void leak(device::Buffer& buffer) {
  static std::mutex& mutex = *new std::mutex;
  static auto& all = *new std::vector<device::Buffer>;
  const std::lock_guard lock(mutex);
  all.push_back(std::move(buffer));
}

}  // namespace

MessageBuffers::State::~State() {
  if (in_flight()) leak(memory);
}

bool MessageBuffers::State::in_flight() const {
  return std::ranges::any_of(messages, &Message::is_in_flight);
}

void MessageBuffers::reserve(std::size_t slots, std::size_t bytes) {
  LOCKSTEP_CHECK(!state_->in_flight());
  if (slots <= state_->messages.size() && bytes <= bytes_) return;
  bytes_ = std::max(bytes_, (bytes + kCacheLine - 1) / kCacheLine * kCacheLine);
  state_->messages.resize(std::max(slots, state_->messages.size()));
  state_->memory = device::HostAllocator().allocate(state_->messages.size() * bytes_);
}

device::Buffer MessageBuffers::keep(device::Buffer buffer) {
  if (buffer.size() == 0) return buffer;
  void* data = buffer.data();
  const std::size_t bytes = buffer.size();
  const device::Device place = buffer.device();
  {
    const std::lock_guard lock(state_->kept_mutex);
    state_->kept.emplace(static_cast<const std::byte*>(data), bytes);
  }
  const auto inner = std::make_shared<device::Buffer>(std::move(buffer));
  return {data, bytes, place, [state = state_, inner](void* memory) {
            const std::lock_guard lock(state->kept_mutex);
            state->kept.erase(static_cast<const std::byte*>(memory));
            if (state->in_flight()) leak(*inner);
          }};
}

bool MessageBuffers::keeps(const std::byte* data, std::size_t bytes) const {
  const std::lock_guard lock(state_->kept_mutex);
  const auto after = state_->kept.upper_bound(data);
  if (after == state_->kept.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return data + bytes <= begin + size;
}

}  // namespace lockstep::inline v0::allreduce
