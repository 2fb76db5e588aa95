#include "lockstep/model/layer/backend.h"

namespace lockstep::inline v0::model {

std::unique_ptr<Backend> make_backend(device::Device device, const ComputeOptions& options,
                                      const ComputeHooks& hooks) {
  if (device.kind == device::DeviceKind::gpu) return make_gpu_backend(device, options, hooks);
  return make_cpu_backend(device, options, hooks);
}

}  // namespace lockstep::inline v0::model
