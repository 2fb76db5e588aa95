// The kinds of device whose trainings a test program compares with PyTorch.
#pragma once

#include <vector>

#include "lockstep/device/device.h"

namespace lockstep::inline v0::model {

/// Defined by the test program: tests on GPUs are separate programs.
std::vector<device::DeviceKind> reference_devices();

}  // namespace lockstep::inline v0::model
