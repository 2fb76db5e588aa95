#include "lockstep/device/cuda/stream.h"

#include <fmt/format.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/device/stream_impl.h"

namespace lockstep::inline v0::device {
namespace {

class GpuEvent final : public EventImpl {
 public:
  GpuEvent(int index, cuda::EventHandle event) : index_(index), event_(std::move(event)) {}

  bool is_complete() const override {
    const cuda::DeviceScope scope(index_);
    const cudaError_t status = cudaEventQuery(event_.get());
    if (status == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());
      return false;
    }
    cuda::check(status, "the work before an event");
    return true;
  }

  void synchronize() const override {
    const cuda::DeviceScope scope(index_);
    cuda::check(cudaEventSynchronize(event_.get()), "the work before an event");
  }

  double seconds_since(const EventImpl& earlier) const override {
    const auto* other = dynamic_cast<const GpuEvent*>(&earlier);
    LOCKSTEP_CHECK(other != nullptr);
    const cuda::DeviceScope scope(index_);
    float milliseconds = 0;
    cuda::check(cudaEventElapsedTime(&milliseconds, other->native(), native()),
                "the time between two events");
    return static_cast<double>(milliseconds) / 1e3;
  }

  cudaEvent_t native() const { return event_.get(); }

 private:
  int index_;
  cuda::EventHandle event_;
};

class GpuStream final : public StreamImpl {
 public:
  explicit GpuStream(int index) : index_(index) {
    cuda::check_available(index);
    const cuda::DeviceScope scope(index);
    cudaStream_t stream = nullptr;
    cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                fmt::format("a stream on gpu:{}", index));
    stream_.reset(stream);
  }

  Device device() const override { return {DeviceKind::gpu, index_}; }

  std::unique_ptr<EventImpl> record(bool timed) override {
    const cuda::DeviceScope scope(index_);
    cudaEvent_t raw = nullptr;
    const unsigned timing = timed ? 0U : cudaEventDisableTiming;
    cuda::check(cudaEventCreateWithFlags(&raw, timing | cudaEventBlockingSync),
                fmt::format("an event on gpu:{}", index_));
    cuda::EventHandle event(raw);
    cuda::check(cudaEventRecord(raw, stream_.get()), fmt::format("an event on gpu:{}", index_));
    return std::make_unique<GpuEvent>(index_, std::move(event));
  }

  // In a recording it is a node, whose time is known after each launch.
  void record(EventImpl& earlier) override {
    const auto* event = dynamic_cast<const GpuEvent*>(&earlier);
    LOCKSTEP_CHECK(event != nullptr);
    const cuda::DeviceScope scope(index_);
    cuda::check(
        cudaEventRecordWithFlags(event->native(), stream_.get(),
                                 is_recording_ ? cudaEventRecordExternal : cudaEventRecordDefault),
        fmt::format("an event on gpu:{}", index_));
  }

  void wait(const EventImpl& event) override {
    const cuda::DeviceScope scope(index_);
    if (const auto* other = dynamic_cast<const GpuEvent*>(&event))
      cuda::check(cudaStreamWaitEvent(stream_.get(), other->native(), 0),
                  "a dependency between streams");
    else
      event.synchronize();
  }

  void synchronize() override {
    const cuda::DeviceScope scope(index_);
    cuda::check(cudaStreamSynchronize(stream_.get()), fmt::format("the work on gpu:{}", index_));
  }

  void copy(void* to, const void* from, std::size_t bytes) override {
    const cuda::DeviceScope scope(index_);
    cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.get()),
                fmt::format("a copy of {} bytes on gpu:{}", bytes, index_));
  }

  // Thread-local capture mode: does not affect other threads, which drive other GPUs.
  void begin_recording() override {
    const cuda::DeviceScope scope(index_);
    cuda::check(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal),
                fmt::format("a recording on gpu:{}", index_));
    is_recording_ = true;
  }
  std::unique_ptr<RecordingImpl> end_recording() override;
  void drop_recording() noexcept override {
    is_recording_ = false;
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(stream_.get(), &graph) == cudaSuccess && graph != nullptr)
      static_cast<void>(cudaGraphDestroy(graph));
    static_cast<void>(cudaGetLastError());
  }

  cudaStream_t native() const { return stream_.get(); }

 private:
  int index_;
  cuda::StreamHandle stream_;
  bool is_recording_ = false;
};

using GraphHandle =
    std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, cuda::Destroy<cudaGraphDestroy>>;
using ExecutableHandle =
    std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, cuda::Destroy<cudaGraphExecDestroy>>;

class GpuRecording final : public RecordingImpl {
 public:
  explicit GpuRecording(ExecutableHandle executable) : executable_(std::move(executable)) {}

  void launch(StreamImpl& stream) override {
    const auto* gpu = dynamic_cast<const GpuStream*>(&stream);
    LOCKSTEP_CHECK(gpu != nullptr);
    const cuda::DeviceScope scope(gpu->device().index);
    cuda::check(cudaGraphLaunch(executable_.get(), gpu->native()), "recorded work");
  }

 private:
  ExecutableHandle executable_;
};

std::unique_ptr<RecordingImpl> GpuStream::end_recording() {
  is_recording_ = false;
  const cuda::DeviceScope scope(index_);
  cudaGraph_t raw = nullptr;
  cuda::check(cudaStreamEndCapture(stream_.get(), &raw),
              fmt::format("a recording on gpu:{}", index_));
  const GraphHandle graph(raw);
  cudaGraphExec_t executable = nullptr;
  cuda::check(cudaGraphInstantiate(&executable, graph.get(), 0),
              fmt::format("a recording on gpu:{}", index_));
  return std::make_unique<GpuRecording>(ExecutableHandle(executable));
}

}  // namespace

std::unique_ptr<StreamImpl> make_gpu_stream(int index) {
  return std::make_unique<GpuStream>(index);
}

cudaStream_t cuda::native(Stream& stream) {
  const auto* gpu = dynamic_cast<const GpuStream*>(&stream.impl());
  LOCKSTEP_CHECK(gpu != nullptr);
  return gpu->native();
}

}  // namespace lockstep::inline v0::device
