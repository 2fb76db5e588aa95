// Memory on a device, and its allocators.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "lockstep/device/device.h"

namespace lockstep::inline v0::device {

/// Bytes on a device, freed with the object. Move-only. At least 64-byte aligned.
class Buffer {
 public:
  using Release = std::function<void(void*)>;  ///< frees the memory; called once, with data()

  Buffer() = default;
  /// Takes ownership of `data`; the destructor calls `release(data)` once.
  Buffer(void* data, std::size_t bytes, Device device, Release release);

  void* data() const noexcept { return data_.get(); }   ///< null in an empty buffer
  std::size_t size() const noexcept { return bytes_; }  ///< in bytes
  Device device() const noexcept { return device_; }    ///< where the memory is

  /// The buffer as elements of T; a partial element at the end is left out.
  template <typename T>
  std::span<T> as() const noexcept {
    return {static_cast<T*>(data_.get()), bytes_ / sizeof(T)};
  }

 private:
  std::unique_ptr<void, Release> data_{nullptr, [](void*) {}};
  std::size_t bytes_ = 0;
  Device device_;
};

/// A source of memory. The model allocates its flat gradient through this interface, so that it can
/// be plain memory, shared memory, or memory registered with a network.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// Allocates `bytes` zeroed bytes on this allocator's device. Throws Error (device) if there is
  /// not enough memory.
  virtual Buffer allocate(std::size_t bytes) = 0;
};

/// Host memory, 64-byte aligned, zeroed, on huge pages if the kernel provides them.
class HostAllocator final : public Allocator {
 public:
  Buffer allocate(std::size_t bytes) override;
};

}  // namespace lockstep::inline v0::device
