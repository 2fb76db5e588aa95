// The stream and arithmetic for gradients on a GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "lockstep/device/device.h"
#include "lockstep/device/stream.h"
#include "lockstep/interop/gradient_math.h"

namespace lockstep::inline v0::torch {

/// Arguments of GradientReducer; both empty on the CPU.
struct GradientDevice {
  /// Ordered with LibTorch's current stream by `math`.
  std::unique_ptr<device::Stream> stream = nullptr;
  /// Runs LibTorch operations on that stream.
  interop::DeviceMath math = {};
};

/// Throws Error (device) for a GPU if LibTorch or Lockstep was built without CUDA.
GradientDevice make_gradient_device(device::Device device);

/// The device of a tensor. Throws Error (device) unless it is a CPU or a CUDA GPU.
device::Device tensor_device(const at::Tensor& tensor);

}  // namespace lockstep::inline v0::torch
