// Order of work on a device. On the CPU work is done when the call returns, so its streams and events are complete at
// once.
#pragma once

#include <memory>

#include "lockstep/device/device.h"

namespace lockstep::device {

class EventImpl;
class StreamImpl;

/// A moment on a stream. Move-only.
class Event {
 public:
  explicit Event(std::unique_ptr<EventImpl> impl);  ///< what a device hands out
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;
  ~Event();

  /// Whether everything before this moment is done; asked from the host, does not block.
  bool is_complete() const;
  /// Blocks the host until everything before this moment is done. Throws Error (device) if it failed.
  void synchronize() const;

  const EventImpl& impl() const { return *impl_; }  ///< device/stream_impl.h; for code of the device's own kind

 private:
  std::unique_ptr<EventImpl> impl_;
};

/// A queue of work on one device, in order. Move-only.
class Stream {
 public:
  /// A new stream. Throws Error (device) for a GPU that is not available.
  explicit Stream(Device device);
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;
  ~Stream();

  Device device() const;  ///< where the work runs
  /// Marks this moment of the stream.
  Event record();
  /// Everything later on this stream runs after `event`. The host does not block, but for a CPU stream that waits for a
  /// GPU: there the host does the work.
  void wait(const Event& event);
  /// Blocks the host until the stream is empty. Throws Error (device) if any of its work failed.
  void synchronize();

  StreamImpl& impl() { return *impl_; }  ///< device/stream_impl.h; for code of the device's own kind

 private:
  std::unique_ptr<StreamImpl> impl_;
};

}  // namespace lockstep::device
