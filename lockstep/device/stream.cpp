#include "lockstep/device/stream.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/device/stream_impl.h"

namespace lockstep::inline v0::device {
namespace {

using Clock = std::chrono::steady_clock;

class CpuEvent final : public EventImpl {
 public:
  explicit CpuEvent(Clock::time_point time) : time_(time) {}

  bool is_complete() const override { return true; }
  void synchronize() const override {}
  double seconds_since(const EventImpl& earlier) const override {
    const auto* other = dynamic_cast<const CpuEvent*>(&earlier);
    LOCKSTEP_CHECK(other != nullptr);
    return std::chrono::duration<double>(time_ - other->time_).count();
  }

 private:
  Clock::time_point time_;
};

class CpuStream final : public StreamImpl {
 public:
  explicit CpuStream(Device device) : device_(device) {}

  Device device() const override { return device_; }
  std::unique_ptr<EventImpl> record(bool timed) override {
    return std::make_unique<CpuEvent>(timed ? Clock::now() : Clock::time_point());
  }
  void record(EventImpl& earlier) override {
    auto* event = dynamic_cast<CpuEvent*>(&earlier);
    LOCKSTEP_CHECK(event != nullptr);
    *event = CpuEvent(Clock::now());
  }
  void wait(const EventImpl& event) override { event.synchronize(); }
  void synchronize() override {}
  void copy(void* to, const void* from, std::size_t bytes) override {
    std::memmove(to, from, bytes);
  }

 private:
  Device device_;
};

std::unique_ptr<StreamImpl> make_stream(Device device) {
  if (device.kind == DeviceKind::gpu) return make_gpu_stream(device.index);
  return std::make_unique<CpuStream>(device);
}

}  // namespace

Event::Event(std::unique_ptr<EventImpl> impl) : impl_(std::move(impl)) {}
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;
Event::~Event() = default;

bool Event::is_complete() const { return impl_->is_complete(); }
void Event::synchronize() const { impl_->synchronize(); }
double Event::seconds_since(const Event& earlier) const {
  return impl_->seconds_since(earlier.impl());
}

Stream::Stream(Device device) : impl_(make_stream(device)) {}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;
Stream::~Stream() = default;

Device Stream::device() const { return impl_->device(); }
Event Stream::record() { return Event(impl_->record(false)); }
Event Stream::record_timed() { return Event(impl_->record(true)); }
void Stream::record(Event& event) { impl_->record(event.impl()); }
void Stream::wait(const Event& event) { impl_->wait(event.impl()); }
void Stream::synchronize() { impl_->synchronize(); }

}  // namespace lockstep::inline v0::device
