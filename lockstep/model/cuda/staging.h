// Small blocks of numbers on their way to a GPU.
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

/// Memory of the GPU that the host gives new values again and again: they are copied into page-locked memory, two
/// copies of which take turns, and from there on a stream of their own, beside the computation. Who reads them on the
/// context's stream comes after them, and who writes the next ones after the reading.
class Staging {
 public:
  explicit Staging(Context& context);

  /// Makes room for `bytes`; what was there is lost, and data() moves.
  void reserve(std::size_t bytes);
  std::byte* data() const { return static_cast<std::byte*>(device_.data()); }  ///< on the GPU

  /// Brings the bytes to data(). Everything put on the context's stream later reads them; everything put there before
  /// read what was there. Does not wait for the GPU, but for the copy before the last.
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

/// One value of a trivial type in the GPU's memory, to be set from the host.
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
