// Device names.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::inline v0::device {

/// The kind of a device.
enum class DeviceKind { cpu, gpu };

/// `cpu:0`, `gpu:1`. Several replicas may share one device (logical devices).
struct Device {
  DeviceKind kind = DeviceKind::cpu;  ///< CPU or GPU
  int index = 0;  ///< among the devices of this kind that are visible to this process

  auto operator<=>(const Device&) const = default;  ///< by kind, then by index
};

std::string to_string(Device device);  ///< "cpu:0"; the reverse of parse_device()

/// Parses `cpu:0` or `gpu:1`. Throws Error (input) with the text and the grammar.
Device parse_device(std::string_view text);

}  // namespace lockstep::inline v0::device
