#include "device/cuda/stream.h"

#include <utility>

#include "device/error.h"
#include "device/stream_impl.h"

namespace lockstep::device {
namespace {

class GpuEvent final : public Event::Impl {
 public:
  explicit GpuEvent(cuda::EventHandle event) : event_(std::move(event)) {}

  bool is_complete() const override {
    const cudaError_t status = cudaEventQuery(event_.get());
    if (status == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());
      return false;
    }
    cuda::check(status, "the work before an event");
    return true;
  }

  void synchronize() const override { cuda::check(cudaEventSynchronize(event_.get()), "the work before an event"); }

  cudaEvent_t native() const { return event_.get(); }

 private:
  cuda::EventHandle event_;
};

class GpuStream final : public Stream::Impl {
 public:
  explicit GpuStream(int index) : index_(index) {
    cuda::check_available(index);
    const cuda::DeviceScope scope(index);
    cudaStream_t stream = nullptr;
    cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), fmt::format("a stream on gpu:{}", index));
    stream_.reset(stream);
  }

  Device device() const override { return {DeviceKind::gpu, index_}; }

  std::unique_ptr<Event::Impl> record() override {
    const cuda::DeviceScope scope(index_);
    cudaEvent_t raw = nullptr;
    cuda::check(cudaEventCreateWithFlags(&raw, cudaEventDisableTiming | cudaEventBlockingSync),
                fmt::format("an event on gpu:{}", index_));
    cuda::EventHandle event(raw);
    cuda::check(cudaEventRecord(raw, stream_.get()), fmt::format("an event on gpu:{}", index_));
    return std::make_unique<GpuEvent>(std::move(event));
  }

  void wait(const Event::Impl& event) override {
    if (const auto* other = dynamic_cast<const GpuEvent*>(&event))
      cuda::check(cudaStreamWaitEvent(stream_.get(), other->native(), 0), "an order between streams");
    else
      event.synchronize();
  }

  void synchronize() override {
    cuda::check(cudaStreamSynchronize(stream_.get()), fmt::format("the work on gpu:{}", index_));
  }

  void copy(void* to, const void* from, std::size_t bytes) override {
    cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.get()),
                fmt::format("a copy of {} bytes on gpu:{}", bytes, index_));
  }

  cudaStream_t native() const { return stream_.get(); }

 private:
  int index_;
  cuda::StreamHandle stream_;
};

}  // namespace

std::unique_ptr<Stream::Impl> make_gpu_stream(int index) { return std::make_unique<GpuStream>(index); }

cudaStream_t cuda::native(Stream& stream) {
  const auto* gpu = dynamic_cast<const GpuStream*>(&stream.impl());
  LOCKSTEP_CHECK(gpu != nullptr);
  return gpu->native();
}

}  // namespace lockstep::device
