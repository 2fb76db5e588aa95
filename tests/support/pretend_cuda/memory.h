// What the memory of the pretended CUDA offers its other parts and tests.
#pragma once

#include <cstddef>

namespace lockstep::pretend {

/// While `count` is more than zero, memory that CUDA knows nothing of counts as the current GPU's.
void count_all_memory_as_gpus(int count);

/// Bytes that can still be allocated on GPU `device`.
std::size_t free_bytes(int device);

}  // namespace lockstep::pretend
