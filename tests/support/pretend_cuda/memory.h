// What the memory of the pretended CUDA offers its other parts and tests.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::pretend {

/// While `count` is more than zero, memory that CUDA knows nothing of counts as the current GPU's.
void count_all_memory_as_gpus(int count);

/// Bytes that can still be allocated on GPU `device`.
std::size_t free_bytes(int device);

/// How many copies from a GPU's memory to a GPU's have been put on streams of this process, or into
/// graphs.
std::uint64_t device_copies();

/// Whether [data, data + bytes) is memory of a GPU. Ends the program where only a part of it is.
bool is_on_gpu(const void* data, std::size_t bytes);

}  // namespace lockstep::pretend
