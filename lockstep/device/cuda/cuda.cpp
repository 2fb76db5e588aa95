#include "lockstep/device/cuda/cuda.h"

#include <fmt/format.h>

#include <cuda.h>

#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"

namespace lockstep::inline v0::device::cuda {

void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // otherwise a later call would report this error
  throw Error(
      ErrorCategory::device, "gpu", fmt::format("expected {}", what),
      fmt::format("CUDA returned {} ({})", cudaGetErrorString(status), cudaGetErrorName(status)));
}

void check_available(int index) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    count = 0;
  }
  if (index >= 0 && index < count) return;
  throw Error(
      ErrorCategory::device, "gpu", fmt::format("expected gpu:{}", index),
      count == 0 ? gpu_unavailable_reason() : fmt::format("this process sees {} GPUs", count));
}

bool has_context(int index) noexcept {
  // The runtime has no such query, and the driver library is not linked, so that programs start
  // without a driver.
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  constexpr unsigned kSince = 7000;  // CUDA 7.0
  if (cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &function, kSince,
                                       cudaEnableDefault, &found) != cudaSuccess ||
      found != cudaDriverEntryPointSuccess) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  unsigned flags = 0;
  int is_active = 0;
  const auto state = reinterpret_cast<CUresult (*)(CUdevice, unsigned*, int*)>(function);
  return state(index, &flags, &is_active) == CUDA_SUCCESS && is_active != 0;
}

DeviceScope::DeviceScope(int index) {
  check(cudaGetDevice(&previous_), "the current GPU");
  has_changed_ = previous_ != index;
  if (has_changed_) check(cudaSetDevice(index), fmt::format("gpu:{}", index));
}

DeviceScope::~DeviceScope() {
  if (has_changed_ && has_context(previous_)) static_cast<void>(cudaSetDevice(previous_));
}

}  // namespace lockstep::inline v0::device::cuda
