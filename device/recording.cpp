#include "device/recording.h"

#include <utility>

#include "device/error.h"
#include "device/stream_impl.h"

namespace lockstep::device {

Recording::Recording(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Recording::Recording(Recording&&) noexcept = default;
Recording& Recording::operator=(Recording&&) noexcept = default;
Recording::~Recording() = default;

bool Recording::is_possible(const Stream& stream) { return stream.device().kind == DeviceKind::gpu; }

Recording Recording::of(Stream& stream, const std::function<void()>& put) {
  LOCKSTEP_CHECK(is_possible(stream));
  Stream::Impl& impl = stream.impl();
  impl.begin_recording();
  try {
    put();
  } catch (...) {
    impl.drop_recording();
    throw;
  }
  return Recording(impl.end_recording());
}

void Recording::launch(Stream& stream) { impl_->launch(stream.impl()); }

}  // namespace lockstep::device
