// What the handles of CUDA point to: streams, events, graphs, and what the driver knows of all of
// them.
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

namespace lockstep::pretend {

/// Work of a graph, and which nodes come before it.
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

}  // namespace lockstep::pretend

struct CUstream_st {
  CUstream_st(int its_device, bool is_blocking, unsigned seed)
      : device(its_device),
        blocks(is_blocking),
        queue(std::make_unique<lockstep::pretend::Queue>(seed)) {}

  int device;
  bool blocks;  // takes turns with the default stream
  std::unique_ptr<lockstep::pretend::Queue> queue;
  std::shared_ptr<lockstep::pretend::Capture> capture;
  std::set<std::size_t> last;  // the nodes that what comes next has to follow
};

struct CUevent_st {
  int device = 0;
  unsigned flags = 0;
  std::shared_ptr<lockstep::pretend::Moment>
      moment;  // when it was last recorded outside of a capture
  std::shared_ptr<lockstep::pretend::Capture> capture;  // in which it was last recorded
  std::set<std::size_t> nodes;                          // what it comes behind in that capture
};

struct CUgraph_st {
  lockstep::pretend::Nodes nodes;
};

struct CUgraphExec_st {
  std::shared_ptr<const lockstep::pretend::Nodes> nodes;
  unsigned launches = 0;
};

namespace lockstep::pretend {

/// Everything below is read and written under its mutex.
struct Driver {
  std::mutex mutex;
  std::map<cudaStream_t, std::unique_ptr<CUstream_st>> streams;
  std::map<int, std::unique_ptr<CUstream_st>> default_streams;
  std::map<cudaEvent_t, std::unique_ptr<CUevent_st>> events;
  std::map<cudaGraph_t, std::unique_ptr<CUgraph_st>> graphs;
  std::map<cudaGraphExec_t, std::unique_ptr<CUgraphExec_st>> executables;
  std::vector<std::shared_ptr<Capture>> captures;
  std::vector<std::unique_ptr<Queue>> ending;  // of destroyed streams, until their work is done
  unsigned seeds = 0;

  /// The handle's object; wrong handles end the program.
  CUstream_st& stream(cudaStream_t handle);
  CUevent_st& event(cudaEvent_t handle);
  CUgraph_st& graph(cudaGraph_t handle);
  CUgraphExec_st& executable(cudaGraphExec_t handle);

  cudaError_t put(CUstream_st& stream, std::function<void()> work);
  /// The work becomes the stream's next node.
  static void add_node(CUstream_st& stream, std::function<void()> work);
  cudaError_t check_no_capture();
  /// Success, unless `stream` is a default stream and one that takes turns with it is captured.
  cudaError_t check_default(const CUstream_st& stream);
  /// Streams that `capture` captures leave it.
  void end(const std::shared_ptr<Capture>& capture);
};

/// Of this process. It stays until the process is gone, since objects of static life may call CUDA
/// in their end.
Driver& driver();

/// `capture` is of no use from now on.
cudaError_t invalidate(Capture& capture, cudaError_t error);

}  // namespace lockstep::pretend
