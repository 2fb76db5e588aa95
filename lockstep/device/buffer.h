// Owned bytes on a device, and who hands them out.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "lockstep/device/device.h"

namespace lockstep::device {

/// Bytes on a device, freed with the object. Move-only. At least 64-byte aligned.
class Buffer {
 public:
  using Release = std::function<void(void*)>;  ///< Gives the memory back; called once, with what data() was.

  Buffer() = default;
  /// Takes over `data`; `release(data)` is called once, when the buffer dies.
  Buffer(void* data, std::size_t bytes, Device device, Release release);

  void* data() const noexcept { return data_.get(); }   ///< the first byte; null in an empty buffer
  std::size_t size() const noexcept { return bytes_; }  ///< in bytes
  Device device() const noexcept { return device_; }    ///< where the memory lies

  /// The buffer as elements of T; whole elements only.
  template <typename T>
  std::span<T> as() const noexcept {
    return {static_cast<T*>(data_.get()), bytes_ / sizeof(T)};
  }

 private:
  std::unique_ptr<void, Release> data_{nullptr, [](void*) {}};
  std::size_t bytes_ = 0;
  Device device_;
};

/// Where memory comes from. The model asks one for its flat gradient and does not know who answers: plain memory, a
/// shared window, or memory registered with a network.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// `bytes` zeroed bytes on this allocator's device. Throws Error (device) when there is not enough.
  virtual Buffer allocate(std::size_t bytes) = 0;
};

/// Host memory, 64-byte aligned, zeroed, on huge pages where the kernel grants them.
class HostAllocator final : public Allocator {
 public:
  Buffer allocate(std::size_t bytes) override;
};

}  // namespace lockstep::device
