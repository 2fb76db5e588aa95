#include "device/stream.h"

#include <cstring>
#include <utility>

#include "device/stream_impl.h"

namespace lockstep::device {
namespace {

class CpuEvent final : public Event::Impl {
 public:
  bool is_complete() const override { return true; }
  void synchronize() const override {}
};

class CpuStream final : public Stream::Impl {
 public:
  explicit CpuStream(Device device) : device_(device) {}

  Device device() const override { return device_; }
  std::unique_ptr<Event::Impl> record() override { return std::make_unique<CpuEvent>(); }
  void wait(const Event::Impl& event) override { event.synchronize(); }
  void synchronize() override {}
  void copy(void* to, const void* from, std::size_t bytes) override { std::memmove(to, from, bytes); }

 private:
  Device device_;
};

std::unique_ptr<Stream::Impl> make_stream(Device device) {
  if (device.kind == DeviceKind::gpu) return make_gpu_stream(device.index);
  return std::make_unique<CpuStream>(device);
}

}  // namespace

Event::Event(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;
Event::~Event() = default;

bool Event::is_complete() const { return impl_->is_complete(); }
void Event::synchronize() const { impl_->synchronize(); }

Stream::Stream(Device device) : impl_(make_stream(device)) {}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;
Stream::~Stream() = default;

Device Stream::device() const { return impl_->device(); }
Event Stream::record() { return Event(impl_->record()); }
void Stream::wait(const Event& event) { impl_->wait(event.impl()); }
void Stream::synchronize() { impl_->synchronize(); }

}  // namespace lockstep::device
