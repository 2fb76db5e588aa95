#include "lockstep/device/device.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::device {
std::string to_string(Device device) {
  return fmt::format("{}:{}", device.kind == DeviceKind::cpu ? "cpu" : "gpu", device.index);
}

Device parse_device(std::string_view text) {
  const auto refuse = [&]() {
    static constexpr std::array<std::string_view, 4> kUsual = {"auto", "gpu:all", "gpu:0", "cpu:0"};
    return Error(ErrorCategory::input, "devices",
                 "expected devices such as cpu:0, gpu:1, gpu:all or auto, separated by commas",
                 got_name(text, kUsual));
  };
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) throw refuse();
  const std::string_view kind = text.substr(0, colon);
  if (kind != "cpu" && kind != "gpu") throw refuse();
  const int index = parse_number<int>(text.substr(colon + 1)).value_or(-1);
  if (index < 0) throw refuse();
  return {kind == "cpu" ? DeviceKind::cpu : DeviceKind::gpu, index};
}

}  // namespace lockstep::inline v0::device
