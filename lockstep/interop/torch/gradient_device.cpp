#include "lockstep/interop/torch/gradient_device.h"

#include "lockstep/base/error.h"

namespace lockstep::inline v0::torch {

device::Device tensor_device(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return {};
  if (tensor.device().is_cuda()) return {device::DeviceKind::gpu, tensor.device().index()};
  throw Error(ErrorCategory::device, "torch", "expected tensors on the CPU or on a CUDA GPU",
              "one is on " + tensor.device().str());
}

}  // namespace lockstep::inline v0::torch
