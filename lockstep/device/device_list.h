// Parsing the list of devices of a process.
#pragma once

#include <string_view>
#include <vector>

#include "lockstep/device/device.h"

namespace lockstep::inline v0::device {

/// Parses the `--devices` option: a comma-separated list, `gpu:all`, or `auto` (all GPUs; cpu:0 on
/// a machine without one). Throws Error (input) for a malformed list and Error (device) for a
/// device that does not exist.
std::vector<Device> parse_devices(std::string_view list);

}  // namespace lockstep::inline v0::device
