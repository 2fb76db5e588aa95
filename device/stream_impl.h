// What a kind of device supplies for streams and events: stream.cpp for the CPU, cuda/stream.cpp for GPUs.
#pragma once

#include <cstddef>
#include <memory>

#include "device/recording.h"
#include "device/stream.h"

namespace lockstep::device {

class Event::Impl {
 public:
  virtual ~Impl() = default;
  virtual bool is_complete() const = 0;
  virtual void synchronize() const = 0;
};

class Stream::Impl {
 public:
  virtual ~Impl() = default;
  virtual Device device() const = 0;
  virtual std::unique_ptr<Event::Impl> record() = 0;
  virtual void wait(const Event::Impl& event) = 0;
  virtual void synchronize() = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;

  // Of a kind that Recording::is_possible for; the others are never asked.
  virtual void begin_recording() {}
  virtual std::unique_ptr<Recording::Impl> end_recording() { return nullptr; }
  /// Ends a recording that has failed, and forgets it.
  virtual void drop_recording() noexcept {}
};

class Recording::Impl {
 public:
  virtual ~Impl() = default;
  virtual void launch(Stream::Impl& stream) = 0;
};

/// Throws Error (device) where the GPU is not available.
std::unique_ptr<Stream::Impl> make_gpu_stream(int index);

}  // namespace lockstep::device
