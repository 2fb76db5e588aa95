// Stream capture on the simulated GPUs. Captured work runs when the graph is launched, in any order
// that it allows. Operations that cannot be captured are rejected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "tests/device/cuda/handles.h"
#include "tests/support/pretend_cuda/streams.h"

namespace lockstep::inline v0::device::cuda {
namespace {

using GraphHandle = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, Destroy<cudaGraphDestroy>>;
using ExecutableHandle =
    std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroy<cudaGraphExecDestroy>>;

class CudaCapture : public ::testing::Test {
 protected:
  ~CudaCapture() override { cudaGetLastError(); }

  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    ASSERT_EQ(cudaStreamBeginCapture(stream_.get(), mode), cudaSuccess);
  }
  cudaError_t end() {
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(stream_.get(), &graph);
    graph_.reset(graph);
    return status;
  }
  ExecutableHandle instantiate() {
    cudaGraphExec_t executable = nullptr;
    EXPECT_EQ(cudaGraphInstantiate(&executable, graph_.get(), 0), cudaSuccess);
    return ExecutableHandle(executable);
  }
  void note(const StreamHandle& stream, char what) {
    ASSERT_EQ(pretend::enqueue(stream.get(), [this, what] { noted_ += what; }), cudaSuccess);
  }
  // fork(): the second stream waits for the first. join(): the first waits for the second.
  void fork() {
    ASSERT_EQ(cudaEventRecord(fork_.get(), stream_.get()), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(other_.get(), fork_.get(), 0), cudaSuccess);
  }
  void join() {
    ASSERT_EQ(cudaEventRecord(join_.get(), other_.get()), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(stream_.get(), join_.get(), 0), cudaSuccess);
  }
  cudaStreamCaptureStatus status(const StreamHandle& stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    EXPECT_EQ(cudaStreamIsCapturing(stream.get(), &status), cudaSuccess);
    return status;
  }
  void expect_is_refused(cudaError_t error, cudaError_t expected) {
    EXPECT_EQ(error, expected);
    EXPECT_EQ(status(stream_), cudaStreamCaptureStatusInvalidated);
    EXPECT_EQ(pretend::enqueue(stream_.get(), [] {}), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph_, nullptr);
    EXPECT_EQ(status(stream_), cudaStreamCaptureStatusNone);
  }

  StreamHandle stream_ = make_stream();
  StreamHandle other_ = make_stream();
  EventHandle fork_ = make_event();
  EventHandle join_ = make_event();
  GraphHandle graph_;
  std::string noted_;
};

TEST_F(CudaCapture, RunsNothingUntilItIsLaunchedAndThenEachTime) {
  const Elements<int> value(1);
  begin();
  EXPECT_EQ(status(stream_), cudaStreamCaptureStatusActive);
  note(stream_, 'a');
  ASSERT_EQ(cudaMemsetAsync(value.get(), 1, sizeof(int), stream_.get()), cudaSuccess);
  note(stream_, 'b');
  ASSERT_EQ(end(), cudaSuccess);
  EXPECT_EQ(status(stream_), cudaStreamCaptureStatusNone);
  synchronize(stream_);
  EXPECT_EQ(noted_, "");

  const ExecutableHandle executable = instantiate();
  graph_.reset();
  ASSERT_EQ(cudaGraphUpload(executable.get(), stream_.get()), cudaSuccess);
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(cudaGraphLaunch(executable.get(), stream_.get()), cudaSuccess);
  synchronize(stream_);
  EXPECT_EQ(noted_, "ababab");
  EXPECT_EQ(value[0], 0x01010101);
}

TEST_F(CudaCapture, IncludesJoinedStreams) {
  begin();
  note(stream_, 'a');
  fork();
  EXPECT_EQ(status(other_), cudaStreamCaptureStatusActive);
  note(stream_, 'b');
  note(other_, 'c');
  note(other_, 'd');
  join();
  note(stream_, 'e');
  ASSERT_EQ(end(), cudaSuccess);
  EXPECT_EQ(status(other_), cudaStreamCaptureStatusNone);

  std::size_t nodes = 0;
  ASSERT_EQ(cudaGraphGetNodes(graph_.get(), nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, 5U);
  const ExecutableHandle executable = instantiate();
  std::set<std::string> orders;
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(cudaGraphLaunch(executable.get(), other_.get()), cudaSuccess);
    synchronize(other_);
    orders.insert(std::exchange(noted_, ""));
  }
  EXPECT_THAT(orders, ::testing::ElementsAre("abcde", "acbde", "acdbe"));
}

TEST_F(CudaCapture, RejectsAForkThatWasNotJoined) {
  begin();
  fork();
  note(other_, 'a');
  EXPECT_EQ(end(), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(status(other_), cudaStreamCaptureStatusNone);
}

TEST_F(CudaCapture, RejectsWaitingForCapturedWork) {
  begin();
  expect_is_refused(cudaStreamSynchronize(stream_.get()), cudaErrorStreamCaptureUnsupported);
  begin();
  expect_is_refused(cudaStreamQuery(stream_.get()), cudaErrorStreamCaptureUnsupported);
  begin();
  ASSERT_EQ(cudaEventRecord(fork_.get(), stream_.get()), cudaSuccess);
  expect_is_refused(cudaEventQuery(fork_.get()), cudaErrorCapturedEvent);
  begin();
  ASSERT_EQ(cudaEventRecord(fork_.get(), stream_.get()), cudaSuccess);
  expect_is_refused(cudaEventSynchronize(fork_.get()), cudaErrorCapturedEvent);
}

TEST_F(CudaCapture, RejectsCallsThatMayWaitForTheGpu) {
  const Elements<int> value(1);
  begin();
  expect_is_refused(cudaStreamSynchronize(other_.get()), cudaErrorStreamCaptureUnsupported);
  begin();
  void* memory = nullptr;
  expect_is_refused(cudaMalloc(&memory, 4), cudaErrorStreamCaptureUnsupported);
  begin();
  expect_is_refused(cudaMemset(value.get(), 0, 4), cudaErrorStreamCaptureUnsupported);
  begin();
  expect_is_refused(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
}

TEST_F(CudaCapture, DoesNotAffectOtherThreadsUnlessGlobal) {
  const auto allocate_elsewhere = [] {
    cudaError_t status = cudaSuccess;
    std::thread([&] {
      void* memory = nullptr;
      status = cudaMalloc(&memory, 4);
      if (status == cudaSuccess) cudaFree(memory);
    }).join();
    return status;
  };
  begin(cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(allocate_elsewhere(), cudaSuccess);
  EXPECT_EQ(end(), cudaSuccess);
  begin(cudaStreamCaptureModeGlobal);
  expect_is_refused(allocate_elsewhere(), cudaErrorStreamCaptureUnsupported);
  begin(cudaStreamCaptureModeRelaxed);
  const Elements<int> allowed(1);
  EXPECT_EQ(end(), cudaSuccess);
}

TEST_F(CudaCapture, EndsIfAnyThreadSynchronizesItsGpu) {
  const auto synchronize_elsewhere = [](int gpu) {
    cudaError_t status = cudaSuccess;
    std::thread([&] {
      const DeviceScope scope(gpu);
      status = cudaDeviceSynchronize();
    }).join();
    return status;
  };
  begin(cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(synchronize_elsewhere(1), cudaSuccess);
  expect_is_refused(synchronize_elsewhere(0), cudaErrorStreamCaptureUnsupported);
}

TEST_F(CudaCapture, IsEndedByItsThreadOnItsStream) {
  begin();
  cudaError_t answer = cudaSuccess;
  std::thread([&] { answer = end(); }).join();
  expect_is_refused(answer, cudaErrorStreamCaptureWrongThread);
  begin();
  fork();
  cudaGraph_t graph = nullptr;
  expect_is_refused(cudaStreamEndCapture(other_.get(), &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(end(), cudaErrorIllegalState);
}

TEST_F(CudaCapture, RejectsDependenciesOnOutsideWork) {
  ASSERT_EQ(cudaEventRecord(fork_.get(), other_.get()), cudaSuccess);
  begin();
  expect_is_refused(cudaStreamWaitEvent(stream_.get(), fork_.get(), 0),
                    cudaErrorStreamCaptureIsolation);
}

TEST_F(CudaCapture, RejectsJoiningAnotherCapture) {
  begin();
  ASSERT_EQ(cudaStreamBeginCapture(other_.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(fork_.get(), other_.get()), cudaSuccess);
  expect_is_refused(cudaStreamWaitEvent(stream_.get(), fork_.get(), 0),
                    cudaErrorStreamCaptureMerge);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(other_.get(), &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CudaCapture, EndsWithItsStream) {
  begin();
  fork();
  stream_ = make_stream();
  EXPECT_EQ(status(other_), cudaStreamCaptureStatusNone);
  const Elements<int> allowed(1);
}

TEST_F(CudaCapture, RejectsTheDefaultStreamAndASecondCapture) {
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal),
            cudaErrorStreamCaptureUnsupported);
  begin();
  EXPECT_EQ(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal),
            cudaErrorIllegalState);
  EXPECT_EQ(end(), cudaSuccess);
}

TEST_F(CudaCapture, RejectsTheDefaultStreamDuringABlockingCapture) {
  const Elements<int> value(1);
  ASSERT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
  stream_ = make_stream(cudaStreamDefault);
  begin();
  expect_is_refused(cudaMemsetAsync(value.get(), 0, 4, cudaStreamLegacy),
                    cudaErrorStreamCaptureImplicit);
  begin();
  expect_is_refused(cudaStreamSynchronize(cudaStreamLegacy), cudaErrorStreamCaptureImplicit);
}

}  // namespace
}  // namespace lockstep::inline v0::device::cuda
