// Memory of the simulated GPUs: attributes, limits, and detection of wrong use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <thread>

#include "lockstep/device/gpu.h"
#include "lockstep/device/stream.h"
#include "tests/device/cuda/handles.h"
#include "tests/support/pretend_cuda/machine.h"

namespace lockstep::inline v0::device::cuda {
namespace {

TEST(CudaMemory, IsFullOfNansBeforeItIsWritten) {
  const Elements<float> values(1000);
  for (const float value : values.span()) ASSERT_TRUE(std::isnan(value));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(values.get()) % 256, 0U);
}

TEST(CudaMemory, IsLimitedForEachGpu) {
  const pretend::Machine machine({.gpus = 2, .bytes_per_gpu = 4096});
  const Elements<std::byte> most(4000);
  void* more = &more;
  EXPECT_EQ(cudaMalloc(&more, 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(more, nullptr);
  std::size_t free = 1;
  std::size_t total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, 0U);
  EXPECT_GT(total, 4096U);
  const DeviceScope other(1);
  const Elements<std::byte> elsewhere(4096);
  cudaGetLastError();
}

TEST(DeviceScope, RestoresOnlyAGpuInUse) {
  const auto current = [] {
    int gpu = -1;
    check(cudaGetDevice(&gpu), "the current GPU");
    return gpu;
  };
  const pretend::NewProcess process;
  {
    const DeviceScope scope(2);
    EXPECT_EQ(current(), 2);
  }
  EXPECT_EQ(current(), 2) << "gpu:0 was not selected";
  EXPECT_FALSE(has_context(0));
  EXPECT_THAT(pretend::gpus_with_context(), testing::ElementsAre(2));
  {
    const DeviceScope scope(1);
    EXPECT_EQ(current(), 1);
  }
  EXPECT_EQ(current(), 2);
  EXPECT_TRUE(has_context(1));
}

TEST(PinnedAllocator, AllocatesOnAGpuInUse) {
  const pretend::NewProcess process;
  const Buffer on_gpu = make_gpu_allocator(3)->allocate(100);
  std::thread([] { make_pinned_allocator()->allocate(100); }).join();  // without a current GPU
  EXPECT_THAT(pretend::gpus_with_context(), testing::ElementsAre(3));
}

TEST(Streams, WorkOnThreadsWithoutACurrentGpu) {
  const pretend::NewProcess process;
  Stream stream(Device{DeviceKind::gpu, 3});
  std::thread([&] {
    const Event event = stream.record();
    EXPECT_NO_THROW(event.is_complete());
    event.synchronize();
    stream.synchronize();
  }).join();
  EXPECT_THAT(pretend::gpus_with_context(), testing::ElementsAre(3));
}

TEST(CudaMemory, ReportsPointerAttributes) {
  const DeviceScope scope(1);
  const Elements<int> values(10);
  cudaPointerAttributes attributes{};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, values.get() + 9), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 1);
  const int on_host = 0;
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, &on_host), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
}

class CudaMemoryDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  static void* allocate(std::size_t bytes) {
    void* data = nullptr;
    check(cudaMalloc(&data, bytes), "memory");
    return data;
  }
};

TEST_F(CudaMemoryDeathTest, DoubleFreeEndsTheProgram) {
  EXPECT_DEATH(
      {
        void* data = allocate(10);
        cudaFree(data);
        cudaFree(data);
      },
      "CUDA was misused: .* was freed twice");
  EXPECT_DEATH(cudaFreeHost(allocate(10)), "was freed that nobody had allocated this way");
}

TEST_F(CudaMemoryDeathTest, WriteOutOfBoundsEndsTheProgram) {
  EXPECT_DEATH(
      {
        auto* data = static_cast<char*>(allocate(10));
        data[10] = 1;
        cudaFree(data);
      },
      "something was written behind the 10 bytes");
  EXPECT_DEATH(
      {
        auto* data = static_cast<char*>(allocate(10));
        data[-1] = 1;
        cudaFree(data);
      },
      "something was written before the 10 bytes");
  EXPECT_DEATH(cudaMemset(allocate(10), 0, 11), "11 bytes at .* end behind their allocation");
}

TEST_F(CudaMemoryDeathTest, UseAfterFreeEndsTheProgram) {
  EXPECT_DEATH(
      {
        void* data = allocate(10);
        cudaFree(data);
        cudaMemset(data, 0, 10);
      },
      "was freed before its use");
  EXPECT_DEATH(
      {
        auto* data = static_cast<char*>(allocate(10));
        cudaFree(data);
        data[5] = 1;
        for (int i = 0; i < 3; ++i) cudaFree(allocate(20'000'000));
      },
      "something was written into the 10 bytes at .* after they were freed");
}

TEST_F(CudaMemoryDeathTest, DestroyedHandleEndsTheProgram) {
  EXPECT_DEATH(
      {
        cudaStream_t stream = nullptr;
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        cudaStreamDestroy(stream);
        cudaStreamSynchronize(stream);
      },
      "CUDA was misused: a call with a stream that is gone or never was");
}

}  // namespace
}  // namespace lockstep::inline v0::device::cuda
