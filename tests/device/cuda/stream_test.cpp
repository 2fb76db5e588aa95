// Streams, events and copies of the simulated GPUs: they run asynchronously, in the specified order
// only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <latch>
#include <memory>
#include <utility>

#include "tests/device/cuda/handles.h"
#include "tests/support/pretend_cuda/streams.h"

namespace lockstep::inline v0::device::cuda {
namespace {

// Keeps a stream busy until released.
class Held {
 public:
  explicit Held(cudaStream_t stream) {
    EXPECT_EQ(pretend::enqueue(stream, [latch = latch_] { latch->wait(); }), cudaSuccess);
  }
  ~Held() { release(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  void release() {
    if (!std::exchange(is_released_, true)) latch_->count_down();
  }

 private:
  std::shared_ptr<std::latch> latch_ =
      std::make_shared<std::latch>(1);  // shared, because the stream may read it late
  bool is_released_ = false;
};

void write(cudaStream_t stream, int* to, int value) {
  EXPECT_EQ(pretend::enqueue(stream, [=] { *to = value; }), cudaSuccess);
}

TEST(CudaStream, RunsAsynchronously) {
  const StreamHandle stream = make_stream();
  const EventHandle event = make_event();
  EXPECT_EQ(cudaStreamQuery(stream.get()), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event.get()), cudaSuccess);  // never recorded
  Held held(stream.get());
  EXPECT_EQ(cudaEventRecord(event.get(), stream.get()), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream.get()), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(event.get()), cudaErrorNotReady);
  held.release();
  EXPECT_EQ(cudaEventSynchronize(event.get()), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event.get()), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream.get()), cudaSuccess);
  cudaGetLastError();
}

TEST(CudaStream, RunsAfterAnEventOfAnotherStream) {
  const StreamHandle first = make_stream();
  const StreamHandle second = make_stream();
  const EventHandle event = make_event();
  const Elements<int> value(1);
  int seen = 0;
  Held held(first.get());
  write(first.get(), value.get(), 1);
  EXPECT_EQ(cudaEventRecord(event.get(), first.get()), cudaSuccess);
  write(first.get(), value.get(), 1);
  EXPECT_EQ(cudaStreamWaitEvent(second.get(), event.get(), 0), cudaSuccess);
  EXPECT_EQ(pretend::enqueue(second.get(), [&] { seen = *value.get(); }), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(second.get()), cudaErrorNotReady);
  held.release();
  synchronize(second);
  EXPECT_EQ(seen, 1);
  synchronize(first);
  cudaGetLastError();
}

TEST(CudaStream, DetectsAMissingWait) {
  const StreamHandle first = make_stream();
  const StreamHandle second = make_stream();
  const Elements<float> value(1);
  float seen = 0;
  Held held(first.get());
  EXPECT_EQ(cudaMemsetAsync(value.get(), 0, sizeof(float), first.get()), cudaSuccess);
  EXPECT_EQ(pretend::enqueue(second.get(), [&] { seen = *value.get(); }), cudaSuccess);
  synchronize(second);
  EXPECT_TRUE(std::isnan(seen));
  held.release();
  synchronize(first);
}

TEST(CudaStream, FinishesItsWorkAfterDestruction) {
  const auto done = std::make_shared<std::latch>(1);
  {
    const StreamHandle stream = make_stream();
    EXPECT_EQ(pretend::enqueue(stream.get(), [done] { done->count_down(); }), cudaSuccess);
  }
  done->wait();
}

TEST(CudaStream, SynchronizesWithTheDefaultStreamUnlessNonBlocking) {
  const StreamHandle blocking = make_stream(cudaStreamDefault);
  const StreamHandle other = make_stream(cudaStreamNonBlocking);
  const Elements<int> value(1);
  ASSERT_EQ(cudaMemset(value.get(), 0, sizeof(int)), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
  Held held(blocking.get());
  write(blocking.get(), value.get(), 1);
  ASSERT_EQ(cudaMemset(value.get(), 2, 1), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady);
  synchronize(other);
  held.release();
  ASSERT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
  EXPECT_EQ(value[0], 2);
  write(cudaStreamLegacy, value.get(), 3);
  write(blocking.get(), value.get(), 4);
  synchronize(blocking);
  EXPECT_EQ(value[0], 4);
  cudaGetLastError();
}

TEST(CudaStream, CallsTheHost) {
  const StreamHandle stream = make_stream();
  struct Seen {
    int calls = 0;
    cudaError_t answer = cudaSuccess;
  } seen;
  ASSERT_EQ(cudaLaunchHostFunc(
                stream.get(),
                [](void* data) {
                  auto* own = static_cast<Seen*>(data);
                  ++own->calls;
                  int device = 0;
                  own->answer = cudaGetDevice(&device);
                },
                &seen),
            cudaSuccess);
  synchronize(stream);
  EXPECT_EQ(seen.calls, 1);
  EXPECT_EQ(seen.answer, cudaErrorNotPermitted);
}

TEST(CudaEvent, MeasuresTimeIfTimingIsEnabled) {
  const StreamHandle stream = make_stream();
  const EventHandle begin = make_event(cudaEventDefault);
  const EventHandle end = make_event(cudaEventDefault);
  const EventHandle untimed = make_event();
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()),
            cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaEventRecord(begin.get(), stream.get()), cudaSuccess);
  Held held(stream.get());
  for (const EventHandle* event : {&end, &untimed})
    ASSERT_EQ(cudaEventRecord(event->get(), stream.get()), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), cudaErrorNotReady);
  held.release();
  synchronize(stream);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), cudaSuccess);
  EXPECT_GT(milliseconds, 0);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin.get(), untimed.get()),
            cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

TEST(CudaEvent, IsRecordedOnAStreamOfItsGpu) {
  const EventHandle event = make_event();
  const DeviceScope other(1);
  const StreamHandle stream = make_stream();
  EXPECT_EQ(cudaEventRecord(event.get(), stream.get()), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(CudaCopy, ReadsPageableMemoryBeforeItReturns) {
  const StreamHandle stream = make_stream();
  const Elements<int> on_gpu(1);
  int on_host = 1;
  Held held(stream.get());
  ASSERT_EQ(
      cudaMemcpyAsync(on_gpu.get(), &on_host, sizeof(int), cudaMemcpyHostToDevice, stream.get()),
      cudaSuccess);
  on_host = 2;
  held.release();
  int back = 0;
  ASSERT_EQ(cudaMemcpyAsync(&back, on_gpu.get(), sizeof(int), cudaMemcpyDeviceToHost, stream.get()),
            cudaSuccess);
  EXPECT_EQ(back, 1);
}

TEST(CudaCopy, ReadsPageLockedMemoryInTheOrderOfTheStream) {
  const StreamHandle stream = make_stream();
  const Elements<int> on_gpu(1);
  void* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(&pinned, sizeof(int), cudaHostAllocDefault), cudaSuccess);
  *static_cast<int*>(pinned) = 1;
  Held held(stream.get());
  ASSERT_EQ(cudaMemcpyAsync(on_gpu.get(), pinned, sizeof(int), cudaMemcpyDefault, stream.get()),
            cudaSuccess);
  *static_cast<int*>(pinned) = 2;
  held.release();
  synchronize(stream);
  EXPECT_EQ(on_gpu[0], 2);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST(CudaCopy, RejectsAWrongDirection) {
  const StreamHandle stream = make_stream();
  const Elements<int> on_gpu(1);
  int on_host = 0;
  EXPECT_EQ(cudaMemcpyAsync(on_gpu.get(), &on_host, 4, cudaMemcpyDeviceToHost, stream.get()),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(on_gpu.get(), &on_host, 4, cudaMemcpyDeviceToDevice, stream.get()),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(&on_host, 0, 4, stream.get()), cudaErrorInvalidValue);
  cudaGetLastError();
}

}  // namespace
}  // namespace lockstep::inline v0::device::cuda
