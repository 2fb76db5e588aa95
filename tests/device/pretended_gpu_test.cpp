// Reports of device/ on different machines: without a driver, with an old one, without GPUs, with
// full memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/device/cuda/stream.h"
#include "lockstep/device/gpu.h"
#include "lockstep/device/stream.h"
#include "tests/support/pretend_cuda/machine.h"
#include "tests/support/pretend_cuda/streams.h"

namespace lockstep::inline v0::device {
namespace {

template <typename Call>
std::string device_error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::device);
    return error.what();
  }
  return "none";
}

class CudaVisibleDevices {
 public:
  explicit CudaVisibleDevices(const char* value) {
    if (value == nullptr)
      unsetenv("CUDA_VISIBLE_DEVICES");
    else
      setenv("CUDA_VISIBLE_DEVICES", value, 1);
  }
  ~CudaVisibleDevices() { unsetenv("CUDA_VISIBLE_DEVICES"); }
};

TEST(SimulatedMachine, HasTheConfiguredGpus) {
  EXPECT_EQ(list_gpus().size(), 8U);
  const pretend::Machine machine({.gpus = 3});
  const std::vector<GpuInfo> gpus = list_gpus();
  ASSERT_EQ(gpus.size(), 3U);
  EXPECT_EQ(gpus[2].uuid, "GPU-00000002-0000-0000-0000-000000000000");
  EXPECT_EQ(gpus[2].compute_major, 9);
  EXPECT_EQ(device_error_of([] { make_gpu_allocator(3); }),
            "[gpu] expected gpu:3; this process sees 3 GPUs");
  EXPECT_EQ(device_error_of([] {
              Stream stream(Device{DeviceKind::gpu, -1});
            }),
            "[gpu] expected gpu:-1; this process sees 3 GPUs");
}

TEST(SimulatedMachine, ReportsAMissingDriver) {
  const pretend::Machine machine({.driver_version = 0});
  const std::string reason =
      "no NVIDIA driver was found: install one, or give the container access to the GPUs; "
      "nvidia-smi must list them";
  EXPECT_FALSE(gpu_is_available());
  EXPECT_EQ(gpu_unavailable_reason(), reason);
  EXPECT_EQ(cuda_loaded_version(), "absent");
  EXPECT_TRUE(list_gpus().empty());
  EXPECT_EQ(device_error_of([] { make_gpu_allocator(0); }), "[gpu] expected gpu:0; " + reason);
  EXPECT_EQ(device_error_of([] { make_pinned_allocator(); }), "[gpu] expected gpu:0; " + reason);
}

TEST(SimulatedMachine, ReportsAnOldDriver) {
  const pretend::Machine machine({.driver_version = 11080});
  EXPECT_FALSE(gpu_is_available());
  EXPECT_EQ(cuda_loaded_version(), "11.8");
  EXPECT_EQ(gpu_unavailable_reason(), "the NVIDIA driver supports CUDA 11.8 and this build needs " +
                                          cuda_built_version() +
                                          ": update the driver, or build with an older toolkit");
  EXPECT_EQ(device_error_of([] {
              Stream stream(Device{DeviceKind::gpu, 0});
            }),
            "[gpu] expected gpu:0; " + gpu_unavailable_reason());
}

TEST(SimulatedMachine, ReportsWhyNoGpuIsVisible) {
  const pretend::Machine machine({.gpus = 0});
  {
    const CudaVisibleDevices unset(nullptr);
    EXPECT_EQ(
        gpu_unavailable_reason(),
        "the NVIDIA driver reports no GPU (CUDA_VISIBLE_DEVICES is not set): check nvidia-smi");
  }
  const CudaVisibleDevices hidden("");
  EXPECT_EQ(gpu_unavailable_reason(),
            "the NVIDIA driver reports no GPU (CUDA_VISIBLE_DEVICES is \"\"): check nvidia-smi");
}

TEST(SimulatedMachine, ReportsFreeMemoryIfAnAllocationFails) {
  const pretend::Machine machine({.bytes_per_gpu = 1'000'000});
  const auto allocator = make_gpu_allocator(1);
  const Buffer first = allocator->allocate(600'000);
  EXPECT_EQ(gpu_free_bytes(1), 1'000'000U - 600'064U);
  EXPECT_EQ(gpu_free_bytes(0), 1'000'000U);
  EXPECT_EQ(device_error_of([&] { allocator->allocate(500'000); }),
            "[memory] expected 500000 bytes on gpu:1; 399936 are free");
  const Buffer second = allocator->allocate(300'000);  // the failure is cleared
  EXPECT_EQ(second.size(), 300'000U);
}

TEST(GpuAllocator, ZeroesAndFreesMemory) {
  const std::size_t before = gpu_free_bytes(0);
  {
    const Buffer buffer = make_gpu_allocator(0)->allocate(100'000);
    EXPECT_LT(gpu_free_bytes(0), before);
    for (const int value : buffer.as<int>()) ASSERT_EQ(value, 0);
    EXPECT_EQ(make_gpu_allocator(0)->allocate(0).size(), 0U);
  }
  EXPECT_EQ(gpu_free_bytes(0), before);
}

TEST(GpuStream, WaitsForGpuAndCpuStreams) {
  Stream first(Device{DeviceKind::gpu, 0});
  Stream second(Device{DeviceKind::gpu, 1});
  std::vector<int> order;
  for (int round = 0; round < 20; ++round) {
    cuda::check(pretend::enqueue(cuda::native(first), [&] { order.push_back(1); }), "work");
    second.wait(first.record());
    cuda::check(pretend::enqueue(cuda::native(second), [&] { order.push_back(2); }), "work");
    first.wait(second.record());
  }
  Stream host(Device{});
  host.wait(first.record());
  ASSERT_EQ(order.size(), 40U);
  for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i % 2 == 0 ? 1 : 2);
}

TEST(GpuStream, ReportsFailures) {
  Stream stream(Device{DeviceKind::gpu, 0});
  ASSERT_EQ(cudaStreamBeginCapture(cuda::native(stream), cudaStreamCaptureModeThreadLocal),
            cudaSuccess);
  EXPECT_EQ(device_error_of([&] { stream.synchronize(); }),
            "[gpu] expected the work on gpu:0; CUDA returned operation not permitted when stream "
            "is capturing (cudaErrorStreamCaptureUnsupported)");
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(cuda::native(stream), &graph), cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
}

}  // namespace
}  // namespace lockstep::inline v0::device
