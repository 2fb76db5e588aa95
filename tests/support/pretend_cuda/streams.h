// Streams of the simulated CUDA, for its other parts.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace lockstep::inline v0::pretend {

/// Enqueues `work` on `stream`, or adds it to the graph while the stream is captured. Returns
/// CUDA's error.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);

/// Enqueues `work` and, unless the stream is captured, waits for it.
cudaError_t perform(cudaStream_t stream, std::function<void()> work);

/// Waits for the work of all streams of all GPUs.
void wait_for_all_streams();

/// The GPU of `stream`: the current one for the default stream.
int device_of(cudaStream_t stream);

/// Success, unless this thread captures a stream in a mode that forbids calls with implicit
/// synchronization: they invalidate the capture.
cudaError_t check_no_capture();

bool is_captured(cudaStream_t stream);

}  // namespace lockstep::inline v0::pretend
