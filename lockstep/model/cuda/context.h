// State shared by the operations of a GPU replica, and the layout of their scratch memory.
#pragma once

#include <cublasLt.h>
#include <cudnn.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/device/cuda/cuda.h"
#include "lockstep/device/stream.h"
#include "lockstep/model/backend.h"
#include "lockstep/model/cuda/algorithm_cache.h"

namespace lockstep::model::cuda {

/// Lays out parts of scratch memory; each starts at a multiple of 256 bytes, as libraries require of a workspace.
class ScratchPlan {
 public:
  static constexpr std::size_t kAlignment = 256;

  /// Adds a part of `bytes` bytes; returns its offset.
  std::size_t add(std::size_t bytes) {
    const std::size_t begin = bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return begin;
  }
  /// Bytes to request from the plan, whose memory has a smaller alignment.
  std::size_t bytes() const { return bytes_ == 0 ? 0 : bytes_ + kAlignment; }

 private:
  std::size_t bytes_ = 0;
};

/// The part of `scratch` at `offset` of its ScratchPlan.
inline std::byte* part_of(std::span<std::byte> scratch, std::size_t offset) {
  const auto address = reinterpret_cast<std::size_t>(scratch.data());
  const std::size_t aligned =
      (address + ScratchPlan::kAlignment - 1) / ScratchPlan::kAlignment * ScratchPlan::kAlignment;
  return scratch.data() + (aligned - address) + offset;
}

// Shared by the operations of one GPU replica: its stream, library handles and precision options.

/// Throw Error (device) unless `status` is success. `what` names the attempted operation, such as "a convolution".
void check(cudnnStatus_t status, std::string_view what);
void check(cublasStatus_t status, std::string_view what);

template <typename Handle, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, device::cuda::Destroy<destroy>>;

using CudnnHandle = Owned<cudnnHandle_t, cudnnDestroy>;
using CublasLtHandle = Owned<cublasLtHandle_t, cublasLtDestroy>;

/// Used by one thread, with the stream's GPU as its current device.
class Context {
 public:
  /// Throws Error (device) if the GPU is not available.
  Context(int gpu, const ComputeOptions& options);

  int gpu() const { return gpu_; }
  /// Reports progress; called during long operations that do not enqueue work for the pass.
  void made_progress() const {
    if (options_.progress) options_.progress();
  }
  const ComputeOptions& options() const { return options_; }
  device::Stream& stream() { return stream_; }
  /// The stream for copies from the host, overlapped with computation.
  device::Stream& copies() { return copies_; }
  cudaStream_t native() const { return native_; }
  cudnnHandle_t cudnn() const { return cudnn_.get(); }
  cublasLtHandle_t cublas() const { return cublas_.get(); }
  cudnnDataType_t cudnn_type() const;
  cudaDataType_t cuda_type() const;
  device::Allocator& allocator() { return *allocator_; }
  AlgorithmCache& algorithms() { return algorithms_; }

 private:
  int gpu_;
  ComputeOptions options_;
  device::Stream stream_;
  device::Stream copies_;
  cudaStream_t native_;
  std::unique_ptr<device::Allocator> allocator_;
  CudnnHandle cudnn_;
  CublasLtHandle cublas_;
  AlgorithmCache algorithms_;
};

}  // namespace lockstep::model::cuda
