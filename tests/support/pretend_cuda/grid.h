// Runs kernels on a simulated GPU: block after block, the threads of a block as fibers of one host
// thread.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_types.h>

#include <cstdint>
#include <functional>

namespace lockstep::inline v0::pretend {

constexpr unsigned kWarpSize = 32;

/// Loads `kernel` as CUDA does before its first launch on the current GPU.
void load(const void* kernel);

/// Enqueues a kernel on `stream`; `thread` is the body of a thread. Returns the errors of a launch.
cudaError_t launch(dim3 blocks, dim3 threads, cudaStream_t stream, std::function<void()> thread);

/// Number of kernels enqueued on streams of this process, or captured in graphs.
std::uint64_t kernel_launches();

// The rest is for kernels.

/// __syncthreads(). Ends the program if a thread of the block ends without reaching it.
void sync_block();

/// Exchanges a value per lane of `mask`, and returns the values by lane. Valid until the lane's
/// next but one call. Ends the program if a lane of `mask` is not in the block, or ends without
/// arriving.
const unsigned long long* exchange_warp(unsigned mask, unsigned long long value);

/// The calling thread's lane.
unsigned lane();

/// Ends the program, naming the calling thread of the kernel.
[[noreturn]] void kernel_misused(const char* how);

}  // namespace lockstep::inline v0::pretend
