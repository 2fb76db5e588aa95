// Interfaces that a kind of device implements for streams and events: stream.cpp for the CPU,
// cuda/stream.cpp for GPUs.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/device/device.h"

namespace lockstep::inline v0::device {

class StreamImpl;

class EventImpl {
 public:
  virtual ~EventImpl() = default;
  virtual bool is_complete() const = 0;
  virtual void synchronize() const = 0;
  virtual double seconds_since(const EventImpl& earlier) const = 0;
};

class RecordingImpl {
 public:
  virtual ~RecordingImpl() = default;
  virtual void launch(StreamImpl& stream) = 0;
};

class StreamImpl {
 public:
  virtual ~StreamImpl() = default;
  virtual Device device() const = 0;
  virtual std::unique_ptr<EventImpl> record(bool timed) = 0;
  virtual void record(EventImpl& earlier) = 0;
  virtual void wait(const EventImpl& event) = 0;
  virtual void synchronize() = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;

  // Called only if Recording::is_possible().
  virtual void begin_recording() {}
  virtual std::unique_ptr<RecordingImpl> end_recording() { return nullptr; }
  /// Ends and discards a failed recording.
  virtual void drop_recording() noexcept {}
};

/// Throws Error (device) if the GPU is not available.
std::unique_ptr<StreamImpl> make_gpu_stream(int index);

}  // namespace lockstep::inline v0::device
