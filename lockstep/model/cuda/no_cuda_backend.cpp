// For builds without CUDA or cuDNN: refuses to train on GPUs and states what to install.
#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"
#include "lockstep/model/backend.h"
#include "lockstep/model/cuda/cudnn_version.h"

namespace lockstep::model {

std::unique_ptr<Backend> make_gpu_backend(device::Device device, const ComputeOptions& /*options*/) {
  const std::string reason = device::gpu_unavailable_reason();
  throw Error(
      ErrorCategory::device, to_string(device), "expected a build with CUDA and cuDNN to train on it",
      reason.empty() ? "cuDNN was not found when this build was configured: install cuDNN 9 and reconfigure" : reason);
}

std::string cudnn_built_version() { return "absent"; }
std::string cudnn_loaded_version() { return "absent"; }

}  // namespace lockstep::model
