// Names of the places where a replica computes.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::device {

/// What a device computes with.
enum class DeviceKind { cpu, gpu };

/// `cpu:0`, `gpu:1`. Several replicas may share one device (logical devices).
struct Device {
  DeviceKind kind = DeviceKind::cpu;  ///< what it computes with
  int index = 0;                      ///< among those of its kind that this process sees

  auto operator<=>(const Device&) const = default;  ///< By kind, then by index.
};

std::string to_string(Device device);  ///< "cpu:0", as parse_device() reads it

/// Reads `cpu:0` or `gpu:1`. Throws Error (input) that shows the text and the grammar.
Device parse_device(std::string_view text);

}  // namespace lockstep::device
