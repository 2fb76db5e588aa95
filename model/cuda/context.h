// What the operations of one GPU replica share: its stream, the libraries' handles, and how exact they are to be.
#pragma once

#include <cublasLt.h>
#include <cudnn.h>

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include "device/cuda/cuda.h"
#include "device/stream.h"
#include "model/backend.h"
#include "model/cuda/algorithm_cache.h"

namespace lockstep::model::cuda {

/// Throw Error (device) unless `status` is success. `what` says what was tried, such as "a convolution".
void check(cudnnStatus_t status, std::string_view what);
void check(cublasStatus_t status, std::string_view what);

template <typename Handle, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, device::cuda::Destroy<destroy>>;

using CudnnHandle = Owned<cudnnHandle_t, cudnnDestroy>;
using CublasLtHandle = Owned<cublasLtHandle_t, cublasLtDestroy>;

/// Used by one thread, while the stream's GPU is its current one.
class Context {
 public:
  /// Throws Error (device) where the GPU is not available.
  Context(int gpu, const ComputeOptions& options);

  int gpu() const { return gpu_; }
  /// For work that takes long and puts nothing on the stream that anybody waits for.
  void made_progress() const {
    if (options_.progress) options_.progress();
  }
  const ComputeOptions& options() const { return options_; }
  device::Stream& stream() { return stream_; }
  /// For what comes from the host, beside the computation.
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
