// Streams and events: the order of work on a device. CPU work is complete when the call returns, so
// CPU streams and events are always complete.
#pragma once

#include <memory>

#include "lockstep/device/device.h"

namespace lockstep::inline v0::device {

class EventImpl;
class StreamImpl;

/// A point in the work of a stream. Move-only.
class Event {
 public:
  explicit Event(std::unique_ptr<EventImpl> impl);  ///< for implementations of a device
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;
  ~Event();

  /// Whether all work before this event is complete. Does not block.
  bool is_complete() const;
  /// Blocks the host until all work before this event is complete. Throws Error (device) if it
  /// failed.
  void synchronize() const;
  /// Seconds from `earlier` to this event. Both must be complete, on one device, and from
  /// Stream::record_timed(). Throws Error (device).
  double seconds_since(const Event& earlier) const;

  /// For code specific to the kind of device (stream_impl.h).
  const EventImpl& impl() const { return *impl_; }
  EventImpl& impl() { return *impl_; }  ///< for changes

 private:
  std::unique_ptr<EventImpl> impl_;
};

/// A queue of work on one device, in order. Move-only.
class Stream {
 public:
  /// Throws Error (device) if the GPU is not available.
  explicit Stream(Device device);
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;
  ~Stream();

  Device device() const;  ///< where the work runs
  /// Records an event at the current end of the stream.
  Event record();
  /// Records an event with the time at which the device reaches it.
  Event record_timed();
  /// Moves `event`, which this stream recorded, to the current end of the stream, without
  /// allocating. While the work of the stream is recorded (Recorder), every launch moves it.
  void record(Event& event);
  /// Makes all later work on this stream wait for `event`. Blocks the host only if this is a CPU
  /// stream and `event` is on a GPU.
  void wait(const Event& event);
  /// Blocks the host until all work on the stream is complete. Throws Error (device) if any of it
  /// failed.
  void synchronize();

  /// For code specific to the kind of device (stream_impl.h).
  StreamImpl& impl() { return *impl_; }

 private:
  std::unique_ptr<StreamImpl> impl_;
};

}  // namespace lockstep::inline v0::device
