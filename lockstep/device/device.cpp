#include "lockstep/device/device.h"

#include <fmt/format.h>

#include <charconv>

#include "lockstep/base/error.h"

namespace lockstep::device {
std::string to_string(Device device) {
  return fmt::format("{}:{}", device.kind == DeviceKind::cpu ? "cpu" : "gpu", device.index);
}

Device parse_device(std::string_view text) {
  const auto refuse = [&]() {
    return Error(ErrorCategory::input, "devices",
                 "expected devices such as cpu:0, gpu:1, gpu:all or auto, separated by commas",
                 fmt::format("got \"{}\"", text));
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

}  // namespace lockstep::device
