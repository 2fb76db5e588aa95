#include "data/sample.h"

#include <algorithm>

#include "device/error.h"
#include "device/pixels.h"

namespace lockstep::data {

std::int64_t SampleSpec::feature_count() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

void Sample::set_image(std::span<const std::uint8_t> image) {
  if (pixels.empty()) return device::pixels_to_features(image, {}, features);
  LOCKSTEP_CHECK_OP(image.size(), ==, pixels.size());
  std::ranges::copy(image, pixels.begin());
}

}  // namespace lockstep::data
