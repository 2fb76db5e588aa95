// A machine with eight GPUs for tests, on any machine: short words for what pretend_cuda/ stands in
// for. The sources of the project that call CUDA run as they are.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/device/stream.h"

namespace lockstep::pretend {

/// gpu:first, gpu:first + 1, … .
std::vector<device::Device> gpus(int count, int first = 0);

/// Puts `work` on a stream of a GPU.
void enqueue(device::Stream& stream, std::function<void()> work);

class AllMemoryIsOnGpus {
 public:
  /// As long as this lives, memory that nobody allocated on a GPU counts as such too: for tests
  /// that know no GPUs.
  AllMemoryIsOnGpus();
  ~AllMemoryIsOnGpus();
  AllMemoryIsOnGpus(const AllMemoryIsOnGpus&) = delete;
  AllMemoryIsOnGpus& operator=(const AllMemoryIsOnGpus&) = delete;
};

/// Memory that counts as a GPU's; to be given back to free_on_gpu.
void* allocate_on_gpu(std::size_t bytes);
void free_on_gpu(void* memory);

}  // namespace lockstep::pretend
