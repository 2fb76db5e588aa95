// The devices of a process, as users list them.
#pragma once

#include <string_view>
#include <vector>

#include "lockstep/device/device.h"

namespace lockstep::device {

/// Reads the `--devices` option: a comma-separated list, `gpu:all`, or `auto` (every GPU; on a machine without one,
/// cpu:0). Throws Error (input) on a malformed list and Error (device) for a device that this machine lacks.
std::vector<Device> parse_devices(std::string_view list);

}  // namespace lockstep::device
