// What gradients need of the device that they lie on: the CPU needs nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "lockstep/device/device.h"
#include "lockstep/device/stream.h"
#include "lockstep/interop/gradient_math.h"

namespace lockstep::torch {

/// For GradientReducer, both null on the CPU.
struct GradientDevice {
  std::unique_ptr<device::Stream> stream = nullptr;       ///< in order with LibTorch's current one by `math`
  std::unique_ptr<interop::GradientMath> math = nullptr;  ///< by operations of LibTorch on that stream
};

/// Throws Error (device) for a GPU where LibTorch or Lockstep was built without CUDA.
GradientDevice make_gradient_device(device::Device device);

/// Where a tensor lies. Throws Error (device) for a device that is neither CPU nor GPU.
device::Device place_of(const at::Tensor& tensor);

}  // namespace lockstep::torch
