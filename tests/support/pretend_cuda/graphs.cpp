// Capture of streams into graphs, and graphs that run.
#include <algorithm>
#include <random>
#include <utility>

#include "tests/support/pretend_cuda/driver.h"
#include "tests/support/pretend_cuda/machine.h"

namespace {

namespace pretend = lockstep::pretend;
using pretend::answer;
using pretend::driver;
using pretend::readiness;

// Whether all `nodes` precede a successor of `last`.
bool all_are_before(const pretend::Nodes& nodes, const std::set<std::size_t>& last) {
  std::set<std::size_t> before = last;
  for (std::size_t node = nodes.size(); node-- > 0;)
    if (before.contains(node)) before.insert(nodes[node].after.begin(), nodes[node].after.end());
  return before.size() == nodes.size();
}

// Runs the nodes in a random order that the graph allows, because a GPU runs branches concurrently.
void run(const pretend::Nodes& nodes, unsigned seed) {
  std::minstd_rand dice(seed);
  std::vector<bool> done(nodes.size());
  std::vector<std::size_t> possible;
  for (std::size_t count = 0; count < nodes.size(); ++count) {
    possible.clear();
    for (std::size_t node = 0; node < nodes.size(); ++node)
      if (!done[node] &&
          std::ranges::all_of(nodes[node].after, [&](std::size_t other) { return done[other]; }))
        possible.push_back(node);
    const std::size_t chosen = possible[dice() % possible.size()];
    nodes[chosen].work();
    done[chosen] = true;
  }
}

cudaError_t end_capture(cudaStream_t handle, cudaGraph_t* graph) {
  const std::lock_guard lock(driver().mutex);
  CUstream_st& stream = driver().stream(handle);
  const std::shared_ptr<pretend::Capture> capture = stream.capture;
  if (!capture) return cudaErrorIllegalState;
  if (capture->origin != handle)
    return pretend::invalidate(*capture, cudaErrorStreamCaptureUnmatched);
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id())
    return pretend::invalidate(*capture, cudaErrorStreamCaptureWrongThread);
  const std::set<std::size_t> last = stream.last;
  driver().end(capture);
  if (!capture->is_valid) return cudaErrorStreamCaptureInvalidated;
  if (!all_are_before(capture->nodes, last)) return cudaErrorStreamCaptureUnjoined;
  auto captured = std::make_unique<CUgraph_st>();
  captured->nodes = capture->nodes;
  *graph = captured.get();
  driver().graphs[*graph] = std::move(captured);
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  if (const cudaError_t status = readiness(); status != cudaSuccess) return answer(status);
  if (handle == nullptr || handle == cudaStreamLegacy)
    return answer(cudaErrorStreamCaptureUnsupported);
  const std::lock_guard lock(driver().mutex);
  CUstream_st& stream = driver().stream(handle);
  if (stream.capture) return answer(cudaErrorIllegalState);
  stream.capture = std::make_shared<pretend::Capture>();
  stream.capture->origin = handle;
  stream.capture->mode = mode;
  stream.capture->thread = std::this_thread::get_id();
  driver().captures.push_back(stream.capture);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const std::lock_guard lock(driver().mutex);
  const CUstream_st& stream = driver().stream(handle);
  if (!stream.capture) {
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
  }
  *status =
      stream.capture->is_valid ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  *graph = nullptr;
  if (const cudaError_t status = readiness(); status != cudaSuccess) return answer(status);
  return answer(end_capture(handle, graph));
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  const std::lock_guard lock(driver().mutex);
  if (nodes != nullptr) return answer(cudaErrorNotSupported);
  *count = driver().graph(graph).nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags) {
  if (const cudaError_t status = readiness(); status != cudaSuccess) return answer(status);
  if (flags != 0) return answer(cudaErrorNotSupported);
  const std::lock_guard lock(driver().mutex);
  auto instance = std::make_unique<CUgraphExec_st>();
  instance->nodes = std::make_shared<const pretend::Nodes>(driver().graph(graph).nodes);
  *executable = instance.get();
  driver().executables[*executable] = std::move(instance);
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  if (const cudaError_t status = readiness(); status != cudaSuccess) return answer(status);
  const std::lock_guard lock(driver().mutex);
  static_cast<void>(driver().executable(executable));
  return answer(driver().enqueue(driver().stream(stream), [] {}));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (const cudaError_t status = readiness(pretend::Call::graph); status != cudaSuccess)
    return answer(status);
  const std::lock_guard lock(driver().mutex);
  CUgraphExec_st& instance = driver().executable(executable);
  return answer(driver().enqueue(
      driver().stream(stream),
      [nodes = instance.nodes, seed = ++instance.launches] { run(*nodes, seed); }));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const std::lock_guard lock(driver().mutex);
  static_cast<void>(driver().executable(executable));
  driver().executables.erase(executable);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const std::lock_guard lock(driver().mutex);
  static_cast<void>(driver().graph(graph));
  driver().graphs.erase(graph);
  return cudaSuccess;
}

}  // extern "C"
