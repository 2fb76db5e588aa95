#include "tests/support/pretend_gpu.h"

#include <utility>

#include "lockstep/device/cuda/stream.h"
#include "tests/support/pretend_cuda/memory.h"
#include "tests/support/pretend_cuda/streams.h"

namespace lockstep::inline v0::pretend {

std::vector<device::Device> gpus(int count, int first) {
  std::vector<device::Device> list;
  for (int i = 0; i < count; ++i) list.push_back({device::DeviceKind::gpu, first + i});
  return list;
}

void enqueue(device::Stream& stream, std::function<void()> work) {
  device::cuda::check(enqueue(device::cuda::native(stream), std::move(work)),
                      "work on a pretended GPU");
}

AllMemoryIsOnGpus::AllMemoryIsOnGpus() { count_all_memory_as_gpus(1); }
AllMemoryIsOnGpus::~AllMemoryIsOnGpus() { count_all_memory_as_gpus(-1); }

void* allocate_on_gpu(std::size_t bytes) {
  void* memory = nullptr;
  device::cuda::check(cudaMalloc(&memory, bytes), "memory of a pretended GPU");
  return memory;
}

void free_on_gpu(void* memory) {
  device::cuda::check(cudaFree(memory), "memory of a pretended GPU");
}

}  // namespace lockstep::inline v0::pretend
