// Host access to values in device memory.
#pragma once

#include <span>
#include <vector>

#include "lockstep/device/buffer.h"
#include "lockstep/device/stream.h"

namespace lockstep::inline v0::device {

/// Host access to float32 values in device memory: the memory itself if it is host memory,
/// otherwise a copy made by the constructor. `memory` must outlive the view. Move-only.
class HostView {
 public:
  HostView() = default;
  /// Waits for the work on `stream`, which is a stream of the memory's device. Throws Error
  /// (device).
  HostView(std::span<float> memory, Stream& stream);

  /// The values on the host. Changes to a copy take effect with write_back().
  std::span<float> values() { return is_copy_ ? std::span<float>(copy_) : memory_; }
  /// Copies the values back to the device and waits for completion. Throws Error (device).
  void write_back(Stream& stream);

 private:
  std::span<float> memory_;
  bool is_copy_ = false;
  std::vector<float> copy_;
};

/// Copies bytes between host and device memory, or within a device, asynchronously on `stream`;
/// synchronously on a CPU stream. Host memory must be page-locked for the copy to be asynchronous.
/// Throws Error (device).
void copy(void* to, const void* from, std::size_t bytes, Stream& stream);

}  // namespace lockstep::inline v0::device
