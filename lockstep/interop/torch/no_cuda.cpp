// Replaces cuda.cpp if LibTorch or Lockstep was built without CUDA.
#include "lockstep/base/error.h"
#include "lockstep/interop/torch/gradient_device.h"

namespace lockstep::inline v0::torch {

GradientDevice make_gradient_device(device::Device device) {
  if (device.kind == device::DeviceKind::cpu) return {};
  throw Error(ErrorCategory::device, "torch",
              "expected LibTorch and Lockstep built with CUDA for gradients on a GPU",
              "got " + to_string(device));
}

}  // namespace lockstep::inline v0::torch
