#include "data/image/image_format.h"

#include <fmt/format.h>

#include "device/error.h"

namespace lockstep::data {

void throw_damaged_image(std::string_view format, std::string_view said) {
  throw Error(ErrorCategory::data, fmt::format("{} image", format), "needed an intact image",
              fmt::format("its decoder says: {}", said));
}

void check_image_size(std::string_view format, std::int64_t height, std::int64_t width, std::int64_t max_pixels) {
  if (height * width <= max_pixels) return;
  throw Error(ErrorCategory::data, fmt::format("{} image", format), fmt::format("needed at most {} pixels", max_pixels),
              fmt::format("the header announces {} x {}", height, width));
}

}  // namespace lockstep::data
