// Kernels on the simulated GPUs: communication between threads, and errors that end the program.
#include "pretended_nvcc.h"  // first, as if the compiler were nvcc

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/device/cuda/launch.h"
#include "tests/device/cuda/handles.h"

namespace lockstep::inline v0::device::cuda {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr unsigned kAll = 0xffffffff;

__global__ void write_indices(int* places) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  places[block * blockDim.x * blockDim.y * blockDim.z + thread] +=
      static_cast<int>(1000 * block + thread);
}

TEST(Kernel, RunsEveryThreadOnceWithItsIndex) {
  const StreamHandle stream = make_stream();
  const Elements<int> places(12 * 30);
  ASSERT_EQ(cudaMemsetAsync(places.get(), 0, places.span().size_bytes(), stream.get()),
            cudaSuccess);
  launch(write_indices, {2, 3, 2}, {5, 3, 2}, stream.get(), places.get());
  synchronize(stream);
  for (std::size_t i = 0; i < places.span().size(); ++i)
    ASSERT_EQ(places[i], static_cast<int>(1000 * (i / 30) + i % 30)) << i;
}

// Each thread reads what another wrote before a barrier, for several rounds.
__global__ void rotate(int* values, int rounds) {
  __shared__ int shared[200];
  int value = values[threadIdx.x];
  for (int round = 0; round < rounds; ++round) {
    shared[threadIdx.x] = value;
    __syncthreads();
    value = shared[(threadIdx.x + 1) % blockDim.x];
    __syncthreads();
  }
  values[threadIdx.x] = value;
}

TEST(Kernel, BarrierPublishesWrites) {
  const StreamHandle stream = make_stream();
  for (const unsigned threads : {1U, 2U, 33U, 200U}) {
    const Elements<int> values(threads);
    std::iota(values.span().begin(), values.span().end(), 0);
    launch(rotate, 1, threads, stream.get(), values.get(), 7);
    launch(rotate, 1, threads, stream.get(), values.get(), 1);  // another order of threads
    synchronize(stream);
    for (unsigned i = 0; i < threads; ++i)
      ASSERT_EQ(values[i], static_cast<int>((i + 8) % threads)) << threads;
  }
}

// Like rotate, without the first barrier.
__global__ void rotate_without_barrier(int* values) {
  __shared__ int shared[64];
  shared[threadIdx.x] = -1;
  __syncthreads();
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  values[threadIdx.x] = shared[(threadIdx.x + 1) % blockDim.x];
}

TEST(Kernel, MissingBarrierIsDetected) {
  const StreamHandle stream = make_stream();
  const Elements<int> values(64);
  launch(rotate_without_barrier, 1, 64, stream.get(), values.get());
  synchronize(stream);
  EXPECT_THAT(std::vector<int>(values.span().begin(), values.span().end()),
              ::testing::Contains(-1));
}

__global__ void shuffle(int* results) {
  const int lane = static_cast<int>(threadIdx.x);
  results[0 * 32 + lane] = __shfl_down_sync(kAll, lane, 3);
  results[1 * 32 + lane] = __shfl_down_sync(kAll, lane, 3, 8);
  results[2 * 32 + lane] = __shfl_xor_sync(kAll, lane, 1);
  // The halves of a warp diverge.
  if (lane < 16)
    results[3 * 32 + lane] = __shfl_xor_sync(0x0000ffff, lane, 2);
  else
    for (int i = 1; i < 4; ++i) results[3 * 32 + lane] = __shfl_xor_sync(0xffff0000, lane, i);
}

TEST(Kernel, ShufflesReadTheNamedLane) {
  const StreamHandle stream = make_stream();
  const Elements<int> results(4 * 32);
  launch(shuffle, 1, 32, stream.get(), results.get());
  synchronize(stream);
  for (int lane = 0; lane < 32; ++lane) {
    const std::vector<int> expected = {lane + 3 < 32 ? lane + 3 : lane,
                                       lane % 8 + 3 < 8 ? lane + 3 : lane, lane ^ 1,
                                       lane ^ (lane < 16 ? 2 : 3)};
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(results[i * 32 + static_cast<std::size_t>(lane)], expected[i])
          << "shuffle " << i << ", lane " << lane;
  }
}

__global__ void keep_largest(unsigned* largest) {
  atomicMax(largest, 64 * blockIdx.x + threadIdx.x);
}

TEST(Kernel, AtomicsOfSeveralStreamsLoseNoUpdate) {
  const StreamHandle streams[] = {make_stream(), make_stream(), make_stream()};
  const Elements<unsigned> largest(1);
  largest[0] = 0;
  for (const StreamHandle& stream : streams)
    launch(keep_largest, 100, 64, stream.get(), largest.get());
  for (const StreamHandle& stream : streams) synchronize(stream);
  EXPECT_EQ(largest[0], 6399U);
}

std::string error_of_launch(dim3 blocks, dim3 threads, cudaStream_t stream) {
  try {
    launch(keep_largest, blocks, threads, stream, nullptr);
    return "none";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Kernel, RejectsInvalidGrids) {
  const StreamHandle stream = make_stream();
  for (const auto& [blocks, threads] :
       {std::pair<dim3, dim3>{1, 1025}, {0, 32}, {1, {32, 64}}, {{1, 65536}, 1}})
    EXPECT_EQ(error_of_launch(blocks, threads, stream.get()),
              "[gpu] expected the launch of a kernel; CUDA returned invalid configuration argument "
              "(cudaErrorInvalidConfiguration)");
}

TEST(Kernel, RejectsTheStreamOfAnotherGpu) {
  const StreamHandle stream = make_stream();
  const DeviceScope other(1);
  EXPECT_THAT(error_of_launch(1, 1, stream.get()), HasSubstr("cudaErrorInvalidResourceHandle"));
}

__global__ void miss_a_barrier(unsigned first) {
  if (threadIdx.x >= first) __syncthreads();
}
__global__ void reach_different_barriers() {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __shfl_xor_sync(threadIdx.x < 63 ? kAll : 0x80000000, 1, 0);
}
__global__ void wait_for_each_other() {
  if (threadIdx.x == 0)
    __syncthreads();
  else
    __shfl_xor_sync(kAll, 1, 0);
}
__global__ void exit_in_warp(unsigned first) {
  if (threadIdx.x >= first) __shfl_xor_sync(kAll, 1.0F, 16);
}
__global__ void shuffle_without_itself() { __shfl_xor_sync(0xfffffffe, 1, 1); }
__global__ void shuffle_from_inactive_lane() {
  if (threadIdx.x < 16) __shfl_xor_sync(0x0000ffff, 1, 16);
}

template <typename... Parameters>
void run(void (*kernel)(Parameters...), unsigned threads,
         std::type_identity_t<Parameters>... arguments) {
  const StreamHandle stream = make_stream();
  launch(kernel, 1, threads, stream.get(), arguments...);
  synchronize(stream);
}

class KernelDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(KernelDeathTest, ABarrierWithoutAllThreadsEndsTheProgram) {
  EXPECT_DEATH(run(miss_a_barrier, 64, 1),
               "CUDA was misused: thread \\(1, 0, 0\\) of block \\(0, 0, 0\\) of a kernel comes to "
               "a barrier that other threads of its block ended without");
  EXPECT_DEATH(run(reach_different_barriers, 64), "CUDA was misused: .*ends without the barrier");
  EXPECT_DEATH(run(wait_for_each_other, 32), "waits for threads that wait for something else");
}

TEST_F(KernelDeathTest, AShuffleWithoutAllItsLanesEndsTheProgram) {
  EXPECT_DEATH(run(exit_in_warp, 32, 3),
               "takes part in a shuffle with lanes that have ended or are not there");
  EXPECT_DEATH(run(exit_in_warp, 16, 0),
               "takes part in a shuffle with lanes that have ended or are not there");
  EXPECT_DEATH(run(shuffle_without_itself, 32), "takes part in a shuffle whose mask leaves it out");
  EXPECT_DEATH(run(shuffle_from_inactive_lane, 32),
               "takes the value of a lane that takes no part in the shuffle");
}

}  // namespace
}  // namespace lockstep::inline v0::device::cuda
