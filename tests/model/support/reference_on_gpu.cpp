#include "tests/model/support/reference_devices.h"

namespace lockstep::inline v0::model {

std::vector<device::DeviceKind> reference_devices() { return {device::DeviceKind::gpu}; }

}  // namespace lockstep::inline v0::model
