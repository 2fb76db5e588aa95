// What the streams of the pretended CUDA offer its other parts.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace lockstep::pretend {

/// Puts `work` behind all before it on `stream`; while the stream is captured, into the graph. The
/// error is CUDA's.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);

/// Enqueues `work` and, unless the stream is captured, waits for it.
cudaError_t perform(cudaStream_t stream, std::function<void()> work);

/// Waits for the work of all streams of all GPUs.
void wait_for_all_streams();

/// The GPU that `stream` is of: the current one for the default stream.
int device_of(cudaStream_t stream);

/// Success, unless this thread captures a stream in a mode that forbids calls which may order work
/// behind its back: those invalidate the capture.
cudaError_t check_no_capture();

bool is_captured(cudaStream_t stream);

}  // namespace lockstep::pretend
