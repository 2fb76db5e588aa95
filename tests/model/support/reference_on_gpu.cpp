#include "tests/model/support/reference_devices.h"

namespace lockstep::model {

std::vector<device::DeviceKind> reference_devices() { return {device::DeviceKind::gpu}; }

}  // namespace lockstep::model
