// Streams and events.
#include "tests/support/pretend_cuda/streams.h"

#include <algorithm>
#include <utility>

#include "tests/support/pretend_cuda/driver.h"
#include "tests/support/pretend_cuda/machine.h"

namespace {

namespace pretend = lockstep::pretend;
using pretend::answer;
using pretend::driver;
using pretend::readiness;

void reap() {
  std::erase_if(driver().ending, [](const auto& queue) { return queue->is_idle(); });
}

cudaError_t record(cudaEvent_t handle, cudaStream_t on) {
  const std::lock_guard lock(driver().mutex);
  CUevent_st& event = driver().event(handle);
  CUstream_st& stream = driver().stream(on);
  if (event.device != stream.device) return cudaErrorInvalidResourceHandle;
  if (stream.capture) {
    if (!stream.capture->is_valid) return cudaErrorStreamCaptureInvalidated;
    event.capture = stream.capture;
    event.nodes = stream.last;
    return cudaSuccess;
  }
  event.capture.reset();
  auto moment = std::make_shared<pretend::Moment>();
  const cudaError_t status = driver().enqueue(stream, [moment] { moment->complete(); });
  if (status == cudaSuccess) event.moment = std::move(moment);
  return status;
}

// While the stream is captured, a node of the graph that records the event in each launch.
cudaError_t record_external(cudaEvent_t handle, cudaStream_t on) {
  const std::lock_guard lock(driver().mutex);
  CUstream_st& stream = driver().stream(on);
  if (driver().event(handle).device != stream.device) return cudaErrorInvalidResourceHandle;
  if (!stream.capture) return cudaErrorIllegalState;
  if (!stream.capture->is_valid) return cudaErrorStreamCaptureInvalidated;
  pretend::Driver::add_node(stream, [handle] {
    auto moment = std::make_shared<pretend::Moment>();
    moment->complete();
    const std::lock_guard while_moved(driver().mutex);
    CUevent_st& event = driver().event(handle);
    event.capture.reset();
    event.moment = std::move(moment);
  });
  return cudaSuccess;
}

cudaError_t join(CUstream_st& stream, const CUevent_st& event) {
  if (!stream.capture) {
    // Only a capture in progress can be joined.
    if (std::ranges::find(driver().captures, event.capture) == driver().captures.end())
      return cudaErrorCapturedEvent;
    stream.capture = event.capture;
    stream.last.clear();
  }
  if (stream.capture != event.capture) {
    event.capture->is_valid = false;
    return pretend::invalidate(*stream.capture, cudaErrorStreamCaptureMerge);
  }
  if (!stream.capture->is_valid) return cudaErrorStreamCaptureInvalidated;
  stream.last.insert(event.nodes.begin(), event.nodes.end());
  return cudaSuccess;
}

cudaError_t wait(cudaStream_t waiting, cudaEvent_t handle) {
  const std::lock_guard lock(driver().mutex);
  CUstream_st& stream = driver().stream(waiting);
  const CUevent_st& event = driver().event(handle);
  if (event.capture) return join(stream, event);
  if (stream.capture) {
    if (!stream.capture->is_valid) return cudaErrorStreamCaptureInvalidated;
    if (!event.moment) return cudaSuccess;
    return pretend::invalidate(*stream.capture, cudaErrorStreamCaptureIsolation);
  }
  if (!event.moment) return cudaSuccess;
  return driver().enqueue(stream, [moment = event.moment] { moment->wait(); });
}

// The moment of an event for queries of the host; null if it was never recorded.
cudaError_t moment_of(cudaEvent_t handle, std::shared_ptr<pretend::Moment>& moment) {
  const std::lock_guard lock(driver().mutex);
  const CUevent_st& event = driver().event(handle);
  if (event.capture) return pretend::invalidate(*event.capture, cudaErrorCapturedEvent);
  moment = event.moment;
  return driver().check_no_capture();
}

// A moment after all work that is on a stream now.
cudaError_t end_of(cudaStream_t handle, std::shared_ptr<pretend::Moment>& moment) {
  const std::lock_guard lock(driver().mutex);
  CUstream_st& stream = driver().stream(handle);
  if (stream.capture)
    return pretend::invalidate(*stream.capture, cudaErrorStreamCaptureUnsupported);
  if (const cudaError_t status = driver().check_default(stream); status != cudaSuccess)
    return status;
  if (const cudaError_t status = driver().check_no_capture(); status != cudaSuccess) return status;
  // After the streams that synchronize with the default stream.
  const cudaError_t status = driver().enqueue(stream, [] {});
  if (status == cudaSuccess) moment = stream.queue->mark();
  return status;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  if (const cudaError_t status = readiness(); status != cudaSuccess) return answer(status);
  if (flags != cudaStreamDefault && flags != cudaStreamNonBlocking)
    return answer(cudaErrorInvalidValue);
  const std::lock_guard lock(driver().mutex);
  reap();
  auto stream = std::make_unique<CUstream_st>(pretend::current_gpu(), flags == cudaStreamDefault,
                                              ++driver().seeds);
  *handle = stream.get();
  driver().streams[*handle] = std::move(stream);
  return cudaSuccess;
}

// Its work still completes; a capture is invalidated.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const std::lock_guard lock(driver().mutex);
  CUstream_st& stream = driver().stream(handle);
  if (const std::shared_ptr<pretend::Capture> capture = stream.capture) {
    capture->is_valid = false;
    if (capture->origin == handle) driver().end(capture);
  }
  driver().ending.push_back(std::move(stream.queue));
  driver().streams.erase(handle);
  reap();
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  if (const cudaError_t status = readiness(pretend::Call::wait); status != cudaSuccess)
    return answer(status);
  std::shared_ptr<pretend::Moment> moment;
  if (const cudaError_t status = end_of(handle, moment); status != cudaSuccess)
    return answer(status);
  moment->wait();
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  if (const cudaError_t status = readiness(pretend::Call::poll); status != cudaSuccess)
    return answer(status);
  const std::lock_guard lock(driver().mutex);
  CUstream_st& stream = driver().stream(handle);
  if (stream.capture)
    return answer(pretend::invalidate(*stream.capture, cudaErrorStreamCaptureUnsupported));
  if (const cudaError_t status = driver().check_no_capture(); status != cudaSuccess)
    return answer(status);
  return answer(stream.queue->is_idle() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  if (const cudaError_t status = readiness(); status != cudaSuccess) return answer(status);
  return answer(flags == cudaEventWaitDefault ? wait(stream, event) : cudaErrorNotSupported);
}

cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t status = readiness(pretend::Call::wait); status != cudaSuccess)
    return answer(status);
  std::vector<std::shared_ptr<pretend::Moment>> moments;
  {
    const std::lock_guard lock(driver().mutex);
    // It waits for captured streams too, whoever captures them and how.
    for (const auto& [handle, stream] : driver().streams)
      if (stream->capture && stream->device == pretend::current_gpu())
        return answer(pretend::invalidate(*stream->capture, cudaErrorStreamCaptureUnsupported));
    if (const cudaError_t status = driver().check_no_capture(); status != cudaSuccess)
      return answer(status);
    const auto mark = [&](const CUstream_st& stream) {
      if (stream.device == pretend::current_gpu()) moments.push_back(stream.queue->mark());
    };
    for (const auto& [handle, stream] : driver().streams) mark(*stream);
    for (const auto& [device, stream] : driver().default_streams) mark(*stream);
  }
  for (const auto& moment : moments) moment->wait();
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  if (const cudaError_t status = readiness(); status != cudaSuccess) return answer(status);
  return answer(pretend::enqueue(stream, [=] {
    const pretend::InsideHostFunction inside;
    function(data);
  }));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  if (const cudaError_t status = readiness(); status != cudaSuccess) return answer(status);
  auto event = std::make_unique<CUevent_st>();
  event->device = pretend::current_gpu();
  event->flags = flags;
  *handle = event.get();
  const std::lock_guard lock(driver().mutex);
  driver().events[*handle] = std::move(event);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* handle) {
  return cudaEventCreateWithFlags(handle, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  const std::lock_guard lock(driver().mutex);
  static_cast<void>(driver().event(handle));
  driver().events.erase(handle);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t status = readiness(); status != cudaSuccess) return answer(status);
  return answer(record(event, stream));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  if (const cudaError_t status = readiness(); status != cudaSuccess) return answer(status);
  if (flags == cudaEventRecordDefault) return answer(record(event, stream));
  return answer(flags == cudaEventRecordExternal ? record_external(event, stream)
                                                 : cudaErrorInvalidValue);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t status = readiness(pretend::Call::poll); status != cudaSuccess)
    return answer(status);
  std::shared_ptr<pretend::Moment> moment;
  if (const cudaError_t status = moment_of(event, moment); status != cudaSuccess)
    return answer(status);
  return answer(!moment || moment->is_complete() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t status = readiness(pretend::Call::wait); status != cudaSuccess)
    return answer(status);
  std::shared_ptr<pretend::Moment> moment;
  if (const cudaError_t status = moment_of(event, moment); status != cudaSuccess)
    return answer(status);
  if (moment) moment->wait();
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (const cudaError_t status = readiness(); status != cudaSuccess) return answer(status);
  std::shared_ptr<pretend::Moment> moments[2];
  for (int i = 0; i < 2; ++i) {
    const cudaEvent_t event = i == 0 ? begin : end;
    if (const cudaError_t status = moment_of(event, moments[i]); status != cudaSuccess)
      return answer(status);
    const std::lock_guard lock(driver().mutex);
    if (!moments[i] || (driver().event(event).flags & cudaEventDisableTiming) != 0)
      return answer(cudaErrorInvalidResourceHandle);
  }
  if (!moments[0]->is_complete() || !moments[1]->is_complete()) return answer(cudaErrorNotReady);
  *milliseconds =
      std::chrono::duration<float, std::milli>(moments[1]->time() - moments[0]->time()).count();
  return cudaSuccess;
}

}  // extern "C"
