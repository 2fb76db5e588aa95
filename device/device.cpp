#include "device/device.h"

#include <fmt/format.h>

#include <charconv>

#include "device/error.h"
#include "device/gpu.h"

namespace lockstep::device {
namespace {

constexpr std::string_view kGrammar = "needed devices such as cpu:0, gpu:1, gpu:all or auto, separated by commas";

}  // namespace

std::string to_string(Device device) {
  return fmt::format("{}:{}", device.kind == DeviceKind::cpu ? "cpu" : "gpu", device.index);
}

Device parse_device(std::string_view text) {
  const auto refuse = [&]() {
    return Error(ErrorCategory::input, "devices", kGrammar, fmt::format("got \"{}\"", text));
  };
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) throw refuse();
  const std::string_view kind = text.substr(0, colon);
  const std::string_view number = text.substr(colon + 1);
  if (kind != "cpu" && kind != "gpu") throw refuse();
  int index = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
  if (error != std::errc{} || end != number.data() + number.size() || index < 0) throw refuse();
  return {kind == "cpu" ? DeviceKind::cpu : DeviceKind::gpu, index};
}

std::vector<Device> parse_devices(std::string_view list) {
  const std::vector<GpuInfo> gpus = list_gpus();
  std::vector<Device> devices;
  const auto add_all_gpus = [&] {
    for (const GpuInfo& gpu : gpus) devices.push_back({DeviceKind::gpu, gpu.index});
  };
  std::size_t begin = 0;
  while (begin <= list.size()) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view item = list.substr(begin, end - begin);
    begin = end + 1;
    if (item == "auto") {
      if (gpus.empty()) devices.push_back({DeviceKind::cpu, 0});
      add_all_gpus();
    } else if (item == "gpu:all") {
      if (gpus.empty()) throw Error(ErrorCategory::device, "devices", "gpu:all needs a GPU", gpu_unavailable_reason());
      add_all_gpus();
    } else {
      const Device device = parse_device(item);
      if (device.kind == DeviceKind::cpu && device.index != 0)
        throw Error(ErrorCategory::device, "devices", "needed cpu:0, the one CPU device of a process",
                    fmt::format("got {}", item));
      if (device.kind == DeviceKind::gpu && device.index >= static_cast<int>(gpus.size()))
        throw Error(ErrorCategory::device, "devices", fmt::format("{} needs {} GPUs", item, device.index + 1),
                    gpus.empty() ? gpu_unavailable_reason() : fmt::format("this process sees {}", gpus.size()));
      devices.push_back(device);
    }
  }
  return devices;
}

}  // namespace lockstep::device
