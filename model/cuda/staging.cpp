#include "model/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "device/error.h"
#include "device/gpu.h"
#include "device/host_view.h"

namespace lockstep::model::cuda {

Staging::Staging(Context& context) : context_(context), pinned_allocator_(device::make_pinned_allocator()) {}

bool Staging::reserve(std::size_t bytes) {
  if (bytes <= device_.size()) return false;
  context_.stream().synchronize();
  context_.copies().synchronize();
  device_ = {};
  device_ = context_.allocator().allocate(bytes);
  for (Slot& slot : slots_) {
    slot.copied.reset();
    slot.pinned = {};
    slot.pinned = pinned_allocator_->allocate(bytes);
  }
  return true;
}

void Staging::bring(std::span<const std::span<const std::byte>> parts) {
  Slot& slot = slots_[turn_];
  turn_ = 1 - turn_;
  if (slot.copied) slot.copied->synchronize();
  std::size_t end = 0;
  for (const auto& part : parts) {
    const std::size_t begin = next(end);
    end = begin + part.size();
    LOCKSTEP_CHECK_OP(end, <=, device_.size());
    if (!part.empty()) std::memcpy(static_cast<std::byte*>(slot.pinned.data()) + begin, part.data(), part.size());
  }
  if (end == 0) return;
  context_.copies().wait(context_.stream().record());
  device::copy(device_.data(), slot.pinned.data(), end, context_.copies());
  slot.copied = context_.copies().record();
  context_.stream().wait(*slot.copied);
}

}  // namespace lockstep::model::cuda
