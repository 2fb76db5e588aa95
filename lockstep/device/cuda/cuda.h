// What the CUDA files share: errors, the current device, owned handles.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string_view>
#include <type_traits>

namespace lockstep::device::cuda {

/// Throws Error (device) unless `status` is success. `what` says what was tried, such as "a stream on gpu:0".
void check(cudaError_t status, std::string_view what);

/// Throws Error (device) unless the driver shows GPU `index`.
void check_available(int index);

/// Whether this process works on GPU `index` already: has its context there, which takes some hundred megabytes of it.
bool has_context(int index) noexcept;

/// Makes `index` the calling thread's current device until the end of the scope. What was current before is so again
/// where this process works on it; else `index` stays, since to choose a GPU is to make a context there, and the GPU
/// that is current in a new thread, gpu:0, may be another process's. Throws Error (device).
class DeviceScope {
 public:
  explicit DeviceScope(int index);
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  ~DeviceScope();

 private:
  int previous_ = 0;
  bool has_changed_ = false;
};

/// Gives a handle back. Errors are dropped: they repeat an earlier failure of the device, and a destructor must not
/// throw.
template <auto destroy>
struct Destroy {
  template <typename T>
  void operator()(T* handle) const noexcept {
    static_cast<void>(destroy(handle));
  }
};

using StreamHandle = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy<cudaStreamDestroy>>;
using EventHandle = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy<cudaEventDestroy>>;

}  // namespace lockstep::device::cuda
