// The objects behind CUDA's handles: streams, events, graphs, and the state of the driver.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/pretend_cuda/queue.h"

namespace lockstep::inline v0::pretend {

/// Work of a graph, and the nodes that precede it.
struct Node {
  std::function<void()> work;
  std::set<std::size_t> after;
};
using Nodes = std::vector<Node>;

/// A capture in progress.
struct Capture {
  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  Nodes nodes;
  bool is_valid = true;
};

}  // namespace lockstep::inline v0::pretend

struct CUstream_st {
  CUstream_st(int its_device, bool is_blocking, unsigned seed)
      : device(its_device),
        blocks(is_blocking),
        queue(std::make_unique<lockstep::pretend::Queue>(seed)) {}

  int device;
  bool blocks;  // synchronizes with the default stream
  std::unique_ptr<lockstep::pretend::Queue> queue;
  std::shared_ptr<lockstep::pretend::Capture> capture;
  std::set<std::size_t> last;  // predecessors of the next node
};

struct CUevent_st {
  int device = 0;
  unsigned flags = 0;
  std::shared_ptr<lockstep::pretend::Moment>
      moment;  // when it was last recorded outside of a capture
  std::shared_ptr<lockstep::pretend::Capture> capture;  // in which it was last recorded
  std::set<std::size_t> nodes;                          // the nodes that it follows in that capture
};

struct CUgraph_st {
  lockstep::pretend::Nodes nodes;
};

struct CUgraphExec_st {
  std::shared_ptr<const lockstep::pretend::Nodes> nodes;
  unsigned launches = 0;
};

namespace lockstep::inline v0::pretend {

/// All state of the simulated driver, accessed under its mutex.
struct Driver {
  std::mutex mutex;
  std::map<cudaStream_t, std::unique_ptr<CUstream_st>> streams;
  std::map<int, std::unique_ptr<CUstream_st>> default_streams;
  std::map<cudaEvent_t, std::unique_ptr<CUevent_st>> events;
  std::map<cudaGraph_t, std::unique_ptr<CUgraph_st>> graphs;
  std::map<cudaGraphExec_t, std::unique_ptr<CUgraphExec_st>> executables;
  std::vector<std::shared_ptr<Capture>> captures;
  std::vector<std::unique_ptr<Queue>> ending;  // queues of destroyed streams with unfinished work
  unsigned seeds = 0;

  /// The handle's object; wrong handles end the program.
  CUstream_st& stream(cudaStream_t handle);
  CUevent_st& event(cudaEvent_t handle);
  CUgraph_st& graph(cudaGraph_t handle);
  CUgraphExec_st& executable(cudaGraphExec_t handle);

  cudaError_t enqueue(CUstream_st& stream, std::function<void()> work);
  /// Adds `work` as the stream's next node.
  static void add_node(CUstream_st& stream, std::function<void()> work);
  cudaError_t check_no_capture();
  /// Success, unless `stream` is a default stream and a stream that synchronizes with it is
  /// captured.
  cudaError_t check_default(const CUstream_st& stream);
  /// Removes all streams from `capture`.
  void end(const std::shared_ptr<Capture>& capture);
};

/// The driver of this process. It is never destroyed, because static objects may call CUDA in their
/// destructors.
Driver& driver();

/// Invalidates `capture`.
cudaError_t invalidate(Capture& capture, cudaError_t error);

}  // namespace lockstep::inline v0::pretend
