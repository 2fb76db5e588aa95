#include "lockstep/model/cuda/context.h"

#include "lockstep/base/error.h"
#include "lockstep/device/cuda/stream.h"
#include "lockstep/device/gpu.h"

namespace lockstep::model::cuda {

void check(cudnnStatus_t status, std::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw Error(ErrorCategory::device, "cudnn", fmt::format("expected {}", what),
              fmt::format("cuDNN {} returned {}", cudnnGetVersion(), cudnnGetErrorString(status)));
}

void check(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorCategory::device, "cublas", fmt::format("expected {}", what),
              fmt::format("cuBLASLt {} returned {}", cublasLtGetVersion(), cublasLtGetStatusString(status)));
}

Context::Context(int gpu, const ComputeOptions& options)
    : gpu_(gpu),
      options_(options),
      stream_(device::Device{device::DeviceKind::gpu, gpu}),
      copies_(device::Device{device::DeviceKind::gpu, gpu}),
      native_(device::cuda::native(stream_)),
      allocator_(device::make_gpu_allocator(gpu)),
      algorithms_(AlgorithmCache::default_file()) {
  const device::cuda::DeviceScope scope(gpu);
  // First, because cuDNN also uses it and may not find it.
  cublasLtHandle_t cublas = nullptr;
  check(cublasLtCreate(&cublas), "cuBLASLt");
  cublas_.reset(cublas);
  cudnnHandle_t cudnn = nullptr;
  check(cudnnCreate(&cudnn), "cuDNN");
  cudnn_.reset(cudnn);
  check(cudnnSetStream(cudnn, native_), "cuDNN on a stream");
}

cudnnDataType_t Context::cudnn_type() const {
  switch (options_.precision) {
    case Precision::float32:
      return CUDNN_DATA_FLOAT;
    case Precision::bfloat16:
      return CUDNN_DATA_BFLOAT16;
    case Precision::float16:
      break;
  }
  return CUDNN_DATA_HALF;
}

cudaDataType_t Context::cuda_type() const {
  switch (options_.precision) {
    case Precision::float32:
      return CUDA_R_32F;
    case Precision::bfloat16:
      return CUDA_R_16BF;
    case Precision::float16:
      break;
  }
  return CUDA_R_16F;
}

}  // namespace lockstep::model::cuda
