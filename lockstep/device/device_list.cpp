#include "lockstep/device/device_list.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/device/gpu.h"

namespace lockstep::inline v0::device {

std::vector<Device> parse_devices(std::string_view list) {
  const std::vector<GpuInfo> gpus = list_gpus();
  std::vector<Device> devices;
  const auto add_all_gpus = [&] {
    for (const GpuInfo& gpu : gpus) devices.push_back({DeviceKind::gpu, gpu.index});
  };
  for (const std::string& item : split_specs("devices", list)) {
    if (item == "auto") {
      if (gpus.empty()) devices.push_back({DeviceKind::cpu, 0});
      add_all_gpus();
    } else if (item == "gpu:all") {
      if (gpus.empty())
        throw Error(ErrorCategory::device, "devices", "expected a GPU for gpu:all",
                    gpu_unavailable_reason());
      add_all_gpus();
    } else {
      const Device device = parse_device(item);
      if (device.kind == DeviceKind::cpu && device.index != 0)
        throw Error(ErrorCategory::device, "devices",
                    "expected cpu:0, the one CPU device of a process", fmt::format("got {}", item));
      if (device.kind == DeviceKind::gpu && device.index >= static_cast<int>(gpus.size()))
        throw Error(ErrorCategory::device, "devices", fmt::format("expected {}", item),
                    gpus.empty() ? gpu_unavailable_reason()
                                 : fmt::format("this process sees {} GPUs", gpus.size()));
      devices.push_back(device);
    }
  }
  return devices;
}

}  // namespace lockstep::inline v0::device
