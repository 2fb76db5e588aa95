// Stream work that is recorded once and launched repeatedly: CUDA graphs on a GPU.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/device/stream.h"

namespace lockstep::inline v0::device {

class RecordingImpl;

/// Recorded work. Accesses the same memory as when it was recorded. Move-only.
class Recording {
 public:
  /// Whether work on `stream` can be recorded. False for CPU streams, which execute work
  /// immediately.
  static bool is_possible(const Stream& stream);

  Recording(Recording&&) noexcept;
  Recording& operator=(Recording&&) noexcept;
  ~Recording();

  /// Enqueues the recorded work on `stream` and calls the host functions between its pieces. Throws
  /// Error (device), and whatever the host functions throw.
  void launch(Stream& stream);

 private:
  friend class Recorder;
  struct Piece {
    std::unique_ptr<RecordingImpl> work;
    std::function<void()> on_host;  // after it; may be empty
  };

  Recording() = default;

  std::vector<Piece> pieces_;
};

/// Records the work enqueued on a stream during its lifetime. In that time, do not allocate memory
/// or wait for the device. The destructor discards an unfinished recording.
class Recorder {
 public:
  /// Starts recording. All members throw Error (device), also for work that cannot be recorded.
  explicit Recorder(Stream& stream);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Ends the current piece, launches it, calls `on_host`, and begins the next piece. Every launch
  /// calls `on_host` at this point. For work that cannot be recorded: `on_host` may enqueue work on
  /// this and other streams, allocate and wait.
  void pause(std::function<void()> on_host);

  /// Ends the last piece and launches it.
  Recording finish();

 private:
  void begin();
  void end(std::function<void()> on_host);

  Stream& stream_;
  bool is_recording_ = false;
  Recording recording_;
};

}  // namespace lockstep::inline v0::device
