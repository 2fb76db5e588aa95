#include "tests/support/pretend_cuda/driver.h"

#include <utility>

#include "tests/support/pretend_cuda/machine.h"
#include "tests/support/pretend_cuda/streams.h"

namespace lockstep::inline v0::pretend {
namespace {

template <typename Handle, typename Objects>
auto& find(Objects& objects, Handle handle, const char* what) {
  const auto found = objects.find(handle);
  if (found == objects.end())
    usage_error(std::string("a call with ") + what + " that is gone or never was");
  return *found->second;
}

bool is_default(cudaStream_t handle) { return handle == nullptr || handle == cudaStreamLegacy; }

}  // namespace

Driver& driver() {
  static auto* driver = new Driver;
  return *driver;
}

CUstream_st& Driver::stream(cudaStream_t handle) {
  if (!is_default(handle)) return find(streams, handle, "a stream");
  auto& own = default_streams[current_gpu()];
  if (!own) own = std::make_unique<CUstream_st>(current_gpu(), true, ++seeds);
  return *own;
}

CUevent_st& Driver::event(cudaEvent_t handle) { return find(events, handle, "an event"); }
CUgraph_st& Driver::graph(cudaGraph_t handle) { return find(graphs, handle, "a graph"); }
CUgraphExec_st& Driver::executable(cudaGraphExec_t handle) {
  return find(executables, handle, "an executable graph");
}

cudaError_t invalidate(Capture& capture, cudaError_t error) {
  capture.is_valid = false;
  return error;
}

void Driver::add_node(CUstream_st& stream, std::function<void()> work) {
  Nodes& nodes = stream.capture->nodes;
  nodes.push_back({std::move(work), std::exchange(stream.last, {nodes.size()})});
}

cudaError_t Driver::enqueue(CUstream_st& stream, std::function<void()> work) {
  if (stream.capture) {
    if (!stream.capture->is_valid) return cudaErrorStreamCaptureInvalidated;
    add_node(stream, std::move(work));
    return cudaSuccess;
  }
  if (const cudaError_t status = check_default(stream); status != cudaSuccess) return status;
  const auto own = default_streams.find(stream.device);
  if (stream.blocks && own != default_streams.end()) {
    const auto follow = [&](const CUstream_st& other) {
      stream.queue->enqueue([moment = other.queue->mark()] { moment->wait(); });
    };
    if (own->second.get() != &stream) {
      follow(*own->second);
    } else {
      for (const auto& [handle, other] : streams)
        if (other->blocks && other->device == stream.device) follow(*other);
    }
  }
  stream.queue->enqueue(std::move(work));
  return cudaSuccess;
}

cudaError_t Driver::check_default(const CUstream_st& stream) {
  const auto own = default_streams.find(stream.device);
  if (own == default_streams.end() || own->second.get() != &stream) return cudaSuccess;
  for (const auto& [handle, other] : streams)
    if (other->blocks && other->device == stream.device && other->capture)
      return invalidate(*other->capture, cudaErrorStreamCaptureImplicit);
  return cudaSuccess;
}

cudaError_t Driver::check_no_capture() {
  cudaError_t status = cudaSuccess;
  for (const std::shared_ptr<Capture>& capture : captures) {
    const bool is_own = capture->thread == std::this_thread::get_id() &&
                        capture->mode != cudaStreamCaptureModeRelaxed;
    if (is_own || capture->mode == cudaStreamCaptureModeGlobal)
      status = invalidate(*capture, cudaErrorStreamCaptureUnsupported);
  }
  return status;
}

void Driver::end(const std::shared_ptr<Capture>& capture) {
  for (const auto& [handle, stream] : streams)
    if (stream->capture == capture) {
      stream->capture.reset();
      stream->last.clear();
    }
  std::erase(captures, capture);
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
  const std::lock_guard lock(driver().mutex);
  return driver().enqueue(driver().stream(stream), std::move(work));
}

cudaError_t perform(cudaStream_t stream, std::function<void()> work) {
  const auto done = std::make_shared<Moment>();
  {
    const std::lock_guard lock(driver().mutex);
    CUstream_st& on = driver().stream(stream);
    const bool waits = on.capture == nullptr;
    const cudaError_t status = driver().enqueue(on, [=, work = std::move(work)] {
      work();
      if (waits) done->complete();
    });
    if (status != cudaSuccess || !waits) return status;
  }
  done->wait();
  return cudaSuccess;
}

void wait_for_all_streams() {
  std::vector<std::shared_ptr<Moment>> ends;
  {
    const std::lock_guard lock(driver().mutex);
    for (const auto& [handle, stream] : driver().streams) ends.push_back(stream->queue->mark());
  }
  for (const auto& end : ends) end->wait();
}

int device_of(cudaStream_t stream) {
  const std::lock_guard lock(driver().mutex);
  return driver().stream(stream).device;
}

cudaError_t check_no_capture() {
  const std::lock_guard lock(driver().mutex);
  return driver().check_no_capture();
}

bool is_captured(cudaStream_t stream) {
  const std::lock_guard lock(driver().mutex);
  return driver().stream(stream).capture != nullptr;
}

}  // namespace lockstep::inline v0::pretend
