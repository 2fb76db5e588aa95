// Work of a stream that is recorded once and done again and again: on a GPU, a CUDA graph.
#pragma once

#include <functional>
#include <memory>

#include "device/stream.h"

namespace lockstep::device {

/// Move-only. Reads and writes the memory that it met when it was recorded.
class Recording {
 public:
  class Impl;

  /// Whether work on `stream` can be recorded; the CPU's cannot, since it is done at once.
  static bool is_possible(const Stream& stream);

  /// Runs `put`. What it puts on `stream`, and on streams that it orders behind and before it, is recorded and not
  /// done; what it does on the host is done, once. Memory must not be allocated in it, and nothing waited for. Throws
  /// Error (device), also for what cannot be recorded; what `put` throws is passed on.
  static Recording of(Stream& stream, const std::function<void()>& put);

  Recording(Recording&&) noexcept;
  Recording& operator=(Recording&&) noexcept;
  ~Recording();

  /// Puts the recorded work on `stream`. Throws Error (device).
  void launch(Stream& stream);

 private:
  explicit Recording(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::device
