#include "lockstep/model/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"
#include "lockstep/device/host_view.h"

namespace lockstep::model::cuda {

Staging::Staging(Context& context) : context_(context), pinned_allocator_(device::make_pinned_allocator()) {}

void Staging::reserve(std::size_t bytes) {
  context_.stream().synchronize();
  context_.copies().synchronize();
  device_ = {};
  device_ = context_.allocator().allocate(bytes);
  for (Slot& slot : slots_) slot = {pinned_allocator_->allocate(bytes), std::nullopt};
}

void Staging::bring(std::span<const std::byte> bytes) {
  LOCKSTEP_CHECK_OP(bytes.size(), <=, device_.size());
  Slot& slot = slots_[turn_];
  turn_ = 1 - turn_;
  if (slot.copied) slot.copied->synchronize();
  std::memcpy(slot.pinned.data(), bytes.data(), bytes.size());
  context_.copies().wait(context_.stream().record());
  device::copy(device_.data(), slot.pinned.data(), bytes.size(), context_.copies());
  slot.copied = context_.copies().record();
  context_.stream().wait(*slot.copied);
}

}  // namespace lockstep::model::cuda
