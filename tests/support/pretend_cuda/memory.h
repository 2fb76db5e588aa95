// Memory of the simulated CUDA, for its other parts and for tests.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::inline v0::pretend {

/// While `count` is above zero, memory unknown to CUDA counts as the current GPU's.
void count_all_memory_as_gpus(int count);

/// Bytes that can still be allocated on GPU `device`.
std::size_t free_bytes(int device);

/// Number of device-to-device copies enqueued on streams of this process, or captured in graphs.
std::uint64_t device_copies();

/// Whether [data, data + bytes) is memory of a GPU. Ends the program if only a part of it is.
bool is_on_gpu(const void* data, std::size_t bytes);

}  // namespace lockstep::inline v0::pretend
