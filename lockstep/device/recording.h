// Work of a stream that is recorded while it is done, and done again and again: on a GPU, CUDA graphs.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/device/stream.h"

namespace lockstep::device {

class RecordingImpl;

/// Move-only. Reads and writes the memory that it met when it was recorded.
class Recording {
 public:
  /// Whether work on `stream` can be recorded; the CPU's cannot, since it is done at once.
  static bool is_possible(const Stream& stream);

  Recording(Recording&&) noexcept;
  Recording& operator=(Recording&&) noexcept;
  ~Recording();

  /// Puts the recorded work on `stream`, and does on the host what is to be done between its pieces. Throws Error
  /// (device), and what the host's part throws.
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

/// Records what is put on a stream during its life. Memory must not be allocated meanwhile, and nothing waited for.
/// What a Recorder has not finished when it goes is forgotten.
class Recorder {
 public:
  /// Throws Error (device), as everything here does, also for what cannot be recorded.
  explicit Recorder(Stream& stream);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Ends a piece of the recording, has it done, and calls `on_host`, now and at this place of every launch; then the
  /// next piece begins. For what cannot be recorded: it may put work on this stream and others, allocate and wait.
  void pause(std::function<void()> on_host);

  /// Ends the last piece and has it done.
  Recording finish();

 private:
  void begin();
  void end(std::function<void()> on_host);

  Stream& stream_;
  bool is_recording_ = false;
  Recording recording_;
};

}  // namespace lockstep::device
