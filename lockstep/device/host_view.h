// Values of a device as the host sees them.
#pragma once

#include <span>
#include <vector>

#include "lockstep/device/buffer.h"
#include "lockstep/device/stream.h"

namespace lockstep::device {

/// Host access to float32 values in the memory of a device: the memory itself where that is the host's, otherwise a
/// copy of what it held when the view was made. `memory` must outlive the view. Move-only.
class HostView {
 public:
  HostView() = default;
  /// Waits for the work on `stream`, which is one of the memory's device. Throws Error (device).
  HostView(std::span<float> memory, Stream& stream);

  /// The values on the host; what is written to them arrives as said above.
  std::span<float> values() { return is_copy_ ? std::span<float>(copy_) : memory_; }
  /// Brings changed values to the device, and waits until they are there. Throws Error (device).
  void write_back(Stream& stream);

 private:
  std::span<float> memory_;
  bool is_copy_ = false;
  std::vector<float> copy_;
};

/// Copies bytes between host and device memory, or within a device, on `stream`; for the host's memory at once. Host
/// memory must be page-locked for this not to wait. Throws Error (device).
void copy(void* to, const void* from, std::size_t bytes, Stream& stream);

}  // namespace lockstep::device
