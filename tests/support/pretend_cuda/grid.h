// How a kernel runs on a pretended GPU: block after block, the threads of a block as fibers of one
// thread of the host.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_types.h>

#include <cstdint>
#include <functional>

namespace lockstep::pretend {

constexpr unsigned kWarpSize = 32;

/// What CUDA does before the first launch of `kernel` on the current GPU.
void load(const void* kernel);

/// Puts a kernel on `stream`: `thread` is what one of its threads does. Errors are those of a
/// launch.
cudaError_t launch(dim3 blocks, dim3 threads, cudaStream_t stream, std::function<void()> thread);

/// How many kernels have been put on streams of this process, or into graphs.
std::uint64_t kernel_launches();

// The rest is for kernels.

/// __syncthreads(). Ends the program where a thread of the block has ended or ends without reaching
/// it.
void meet_block();

/// All lanes of `mask` give a value; each gets the values of all, by lane. Valid until the lane's
/// next but one call. Ends the program where a lane of `mask` is none of the block, has ended, or
/// ends without coming.
const unsigned long long* meet_warp(unsigned mask, unsigned long long value);

/// The calling thread's lane.
unsigned lane();

/// Ends the program, naming the calling thread of the kernel.
[[noreturn]] void kernel_misused(const char* how);

}  // namespace lockstep::pretend
