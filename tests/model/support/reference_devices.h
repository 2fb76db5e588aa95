// The kinds of device whose trainings a test program holds against those of PyTorch.
#pragma once

#include <vector>

#include "lockstep/device/device.h"

namespace lockstep::model {

/// Supplied by the test program: those that need a GPU are programs of their own.
std::vector<device::DeviceKind> reference_devices();

}  // namespace lockstep::model
