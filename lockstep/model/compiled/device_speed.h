// Measures the speed of a replica's device.
#pragma once

#include "lockstep/model/layer/backend.h"
#include "lockstep/model/layer/step_profile.h"

namespace lockstep::inline v0::model {

/// Measures the device of `backend` for some tenths of a second, with the threads of the calling
/// replica: a ReLU for the memory bandwidth, and the product of two square matrices in the
/// backend's precision for the arithmetic. Sizes double until a pass takes a millisecond, within a
/// quarter of the free memory. Throws Error (device).
DeviceSpeed measure_speed(Backend& backend);

}  // namespace lockstep::inline v0::model
