// Repeated transfers of small blocks to a GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/device/buffer.h"
#include "lockstep/device/stream.h"
#include "lockstep/model/cuda/context.h"

namespace lockstep::model::cuda {

/// GPU memory that the host updates repeatedly. Values are copied to one of two alternating page-locked buffers, and
/// from there on a separate stream, overlapped with computation. Readers on the context's stream are ordered after the
/// copy, and the next copy is ordered after the readers.
class Staging {
 public:
  explicit Staging(Context& context);

  /// Resizes to `bytes`; the contents are lost, and data() changes.
  void reserve(std::size_t bytes);
  std::byte* data() const { return static_cast<std::byte*>(device_.data()); }  ///< on the GPU

  /// Copies the bytes to data(). Work enqueued on the context's stream later reads them; work enqueued before reads the
  /// old contents. Does not wait for the GPU, except for the copy before the previous one.
  void bring(std::span<const std::byte> bytes);

 private:
  struct Slot {
    device::Buffer pinned;
    std::optional<device::Event> copied;
  };

  Context& context_;
  std::unique_ptr<device::Allocator> pinned_allocator_;
  device::Buffer device_;
  Slot slots_[2];
  std::size_t turn_ = 0;
};

/// One value of a trivial type in GPU memory, set by the host.
template <typename T>
class StagedValue {
 public:
  explicit StagedValue(Context& context) : staging_(context) { staging_.reserve(sizeof(T)); }
  const T* data() const { return reinterpret_cast<const T*>(staging_.data()); }
  void set(const T& value) { staging_.bring(std::as_bytes(std::span(&value, 1))); }

 private:
  Staging staging_;
};

}  // namespace lockstep::model::cuda
