#include "lockstep/device/recording.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/device/stream_impl.h"

namespace lockstep::inline v0::device {

Recording::Recording(Recording&&) noexcept = default;
Recording& Recording::operator=(Recording&&) noexcept = default;
Recording::~Recording() = default;

bool Recording::is_possible(const Stream& stream) {
  return stream.device().kind == DeviceKind::gpu;
}

void Recording::launch(Stream& stream) {
  for (const Piece& piece : pieces_) {
    piece.work->launch(stream.impl());
    if (piece.on_host) piece.on_host();
  }
}

Recorder::Recorder(Stream& stream) : stream_(stream) {
  LOCKSTEP_CHECK(Recording::is_possible(stream));
  begin();
}

Recorder::~Recorder() {
  if (is_recording_) stream_.impl().drop_recording();
}

void Recorder::begin() {
  stream_.impl().begin_recording();
  is_recording_ = true;
}

void Recorder::end(std::function<void()> on_host) {
  is_recording_ = false;  // even if end_recording() throws
  recording_.pieces_.push_back({stream_.impl().end_recording(), std::move(on_host)});
  const Recording::Piece& piece = recording_.pieces_.back();
  piece.work->launch(stream_.impl());
  if (piece.on_host) piece.on_host();
}

void Recorder::pause(std::function<void()> on_host) {
  end(std::move(on_host));
  begin();
}

Recording Recorder::finish() {
  end({});
  return std::move(recording_);
}

}  // namespace lockstep::inline v0::device
