#include "lockstep/device/host_view.h"

#include "lockstep/device/stream_impl.h"

namespace lockstep::inline v0::device {

HostView::HostView(std::span<float> memory, Stream& stream)
    : memory_(memory), is_copy_(stream.device().kind != DeviceKind::cpu) {
  if (!is_copy_) return;
  copy_.resize(memory.size());
  copy(copy_.data(), memory.data(), memory.size_bytes(), stream);
  stream.synchronize();
}

void HostView::write_back(Stream& stream) {
  if (!is_copy_) return;
  copy(memory_.data(), copy_.data(), memory_.size_bytes(), stream);
  stream.synchronize();
}

void copy(void* to, const void* from, std::size_t bytes, Stream& stream) {
  if (bytes > 0) stream.impl().copy(to, from, bytes);
}

}  // namespace lockstep::inline v0::device
