// Eight simulated GPUs for tests on any machine: helpers for pretend_cuda/. The project's sources
// that call CUDA run unchanged.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/device/stream.h"

namespace lockstep::inline v0::pretend {

/// gpu:first, gpu:first + 1, … .
std::vector<device::Device> gpus(int count, int first = 0);

/// Enqueues `work` on a stream of a GPU.
void enqueue(device::Stream& stream, std::function<void()> work);

class AllMemoryIsOnGpus {
 public:
  /// During its lifetime, host memory counts as a GPU's, too: for tests that do not allocate GPU
  /// memory.
  AllMemoryIsOnGpus();
  ~AllMemoryIsOnGpus();
  AllMemoryIsOnGpus(const AllMemoryIsOnGpus&) = delete;
  AllMemoryIsOnGpus& operator=(const AllMemoryIsOnGpus&) = delete;
};

/// Memory that counts as a GPU's; release it with free_on_gpu.
void* allocate_on_gpu(std::size_t bytes);
void free_on_gpu(void* memory);

}  // namespace lockstep::inline v0::pretend
