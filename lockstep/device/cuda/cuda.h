// Shared by the CUDA sources: errors, the current device, owning handles.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string_view>
#include <type_traits>

namespace lockstep::inline v0::device::cuda {

/// Throws Error (device) unless `status` is success. `what` is the expected result, such as "a
/// stream on gpu:0".
void check(cudaError_t status, std::string_view what);

/// Throws Error (device) unless the driver reports GPU `index`.
void check_available(int index);

/// Whether this process has a context on GPU `index`. A context takes several hundred megabytes of
/// GPU memory.
bool has_context(int index) noexcept;

/// Makes `index` the calling thread's current device until the end of the scope. The destructor
/// restores the previous device only if this process has a context there: cudaSetDevice() creates a
/// context, and gpu:0, which is current in a new thread, may belong to another process. Throws
/// Error (device).
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

/// Deleter for handles. Errors are ignored: they repeat an earlier failure of the device, and a
/// destructor must not throw.
template <auto destroy>
struct Destroy {
  template <typename T>
  void operator()(T* handle) const noexcept {
    static_cast<void>(destroy(handle));
  }
};

using StreamHandle =
    std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy<cudaStreamDestroy>>;
using EventHandle = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy<cudaEventDestroy>>;

}  // namespace lockstep::inline v0::device::cuda
