// A machine with eight GPUs for tests of what surrounds them, on any machine: the program links pretend_gpu.cpp, which
// stands in for the parts of device/ and allreduce/ that call CUDA. Memory of a GPU is memory of the host, a stream is
// a thread that does its work one after the other and now and then dawdles, so what is not ordered shows, to the thread
// sanitizer in any case.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "device/device.h"
#include "device/stream.h"

namespace lockstep::pretend {

constexpr int kGpus = 8;

/// gpu:first, gpu:first + 1, … .
std::vector<device::Device> gpus(int count, int first = 0);

/// Puts `work` on a stream of a GPU.
void enqueue(device::Stream& stream, std::function<void()> work);

class AllMemoryIsOnGpus {
 public:
  /// As long as this lives, memory that nobody allocated on a GPU counts as such too: for tests that know no GPUs.
  AllMemoryIsOnGpus();
  ~AllMemoryIsOnGpus();
  AllMemoryIsOnGpus(const AllMemoryIsOnGpus&) = delete;
  AllMemoryIsOnGpus& operator=(const AllMemoryIsOnGpus&) = delete;
};

/// Memory that counts as a GPU's; to be given back to free_on_gpu.
void* allocate_on_gpu(std::size_t bytes);
void free_on_gpu(void* memory);

}  // namespace lockstep::pretend
