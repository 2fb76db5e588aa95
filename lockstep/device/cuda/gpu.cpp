#include "lockstep/device/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/base/system/numa.h"
#include "lockstep/device/cuda/cuda.h"

namespace lockstep::inline v0::device {
namespace {

struct Probe {
  cudaError_t status = cudaSuccess;
  int count = 0;
};

Probe probe() noexcept {
  Probe result;
  result.status = cudaGetDeviceCount(&result.count);
  if (result.status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    result.count = 0;
  }
  return result;
}

int driver_version() noexcept {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess) static_cast<void>(cudaGetLastError());
  return version;
}

// CUDA encodes versions as 1000 * major + 10 * minor.
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

int numa_node_of(int gpu) noexcept {
  std::array<char, 32> id{};
  if (cudaDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()), gpu) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return -1;
  }
  return numa_node_of_pci(id.data());
}

class GpuAllocator final : public Allocator {
 public:
  explicit GpuAllocator(int index) : index_(index) {}

  Buffer allocate(std::size_t bytes) override {
    const std::size_t size = std::max<std::size_t>(bytes, 1);
    const cuda::DeviceScope scope(index_);
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, size);
    if (status == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      throw Error(ErrorCategory::device, "memory",
                  fmt::format("expected {} bytes on gpu:{}", bytes, index_),
                  fmt::format("{} are free", gpu_free_bytes(index_)));
    }
    cuda::check(status, fmt::format("{} bytes on gpu:{}", bytes, index_));
    Buffer buffer(data, bytes, Device{DeviceKind::gpu, index_},
                  [](void* memory) { static_cast<void>(cudaFree(memory)); });
    cuda::check(cudaMemset(data, 0, size), "zeroed memory");
    // Our streams do not wait for the default stream, so the zeros must be written before the
    // buffer is returned.
    cuda::check(cudaStreamSynchronize(cudaStreamLegacy), "zeroed memory");
    return buffer;
  }

 private:
  int index_;
};

// A GPU on which this process has a context: preferably the calling thread's current one.
// Page-locked memory is accessible to all GPUs, but allocating it creates a context on the current
// one.
int gpu_in_use() {
  int current = 0;
  cuda::check(cudaGetDevice(&current), "the current GPU");
  if (cuda::has_context(current)) return current;
  const int count = probe().count;
  for (int index = 0; index < count; ++index)
    if (cuda::has_context(index)) return index;
  return current;
}

class PinnedAllocator final : public Allocator {
 public:
  Buffer allocate(std::size_t bytes) override {
    const cuda::DeviceScope scope(gpu_in_use());
    const std::size_t size = std::max<std::size_t>(bytes, 1);
    void* data = nullptr;
    cuda::check(cudaHostAlloc(&data, size, cudaHostAllocPortable),
                fmt::format("{} bytes of page-locked host memory", bytes));
    std::fill_n(static_cast<std::byte*>(data), size, std::byte{0});
    return Buffer(data, bytes, Device{},
                  [](void* memory) { static_cast<void>(cudaFreeHost(memory)); });
  }
};

}  // namespace

bool gpu_is_available() noexcept { return probe().count > 0; }

std::string gpu_unavailable_reason() {
  const Probe gpus = probe();
  if (gpus.count > 0) return "";
  const int driver = driver_version();
  if (driver == 0)
    return "no NVIDIA driver was found: install one, or give the container access to the GPUs; "
           "nvidia-smi must list them";
  if (gpus.status == cudaErrorInsufficientDriver)
    return fmt::format(
        "the NVIDIA driver supports CUDA {} and this build needs {}: update the driver, or build "
        "with an older toolkit",
        version_text(driver), cuda_built_version());
  if (gpus.status == cudaErrorNoDevice || gpus.status == cudaSuccess) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return fmt::format(
        "the NVIDIA driver reports no GPU (CUDA_VISIBLE_DEVICES is {}): check nvidia-smi",
        visible == nullptr ? "not set" : fmt::format("\"{}\"", visible));
  }
  return fmt::format("CUDA returned {} ({}): check nvidia-smi", cudaGetErrorString(gpus.status),
                     cudaGetErrorName(gpus.status));
}

std::vector<GpuInfo> list_gpus() {
  std::vector<GpuInfo> gpus;
  const int count = probe().count;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      break;
    }
    gpus.push_back({.index = index,
                    .name = properties.name,
                    .uuid = uuid_text(properties.uuid),
                    .total_bytes = properties.totalGlobalMem,
                    .compute_major = properties.major,
                    .compute_minor = properties.minor,
                    .numa_node = numa_node_of(index)});
  }
  return gpus;
}

std::size_t gpu_free_bytes(int index) {
  cuda::check_available(index);
  const cuda::DeviceScope scope(index);
  std::size_t free = 0;
  std::size_t total = 0;
  cuda::check(cudaMemGetInfo(&free, &total), fmt::format("the free memory of gpu:{}", index));
  return free;
}

std::string cuda_built_version() { return version_text(CUDART_VERSION); }

std::string cuda_loaded_version() {
  const int version = driver_version();
  return version == 0 ? "absent" : version_text(version);
}

std::unique_ptr<Allocator> make_gpu_allocator(int index) {
  cuda::check_available(index);
  return std::make_unique<GpuAllocator>(index);
}

std::unique_ptr<Allocator> make_pinned_allocator() {
  cuda::check_available(0);
  return std::make_unique<PinnedAllocator>();
}

}  // namespace lockstep::inline v0::device
