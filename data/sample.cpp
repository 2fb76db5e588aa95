#include "data/sample.h"

#include <fmt/ranges.h>

#include <cstring>

#include "device/error.h"
#include "device/pixels.h"

namespace lockstep::data {

std::int64_t SampleSpec::feature_count() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

void check_shape(std::span<const std::int64_t> shape, const std::string& where) {
  constexpr std::int64_t kMost = std::int64_t{1} << 28;
  std::int64_t count = 1;
  bool is_sensible = !shape.empty();
  for (const std::int64_t extent : shape) {
    is_sensible = is_sensible && extent > 0 && extent <= kMost / count;
    if (!is_sensible) break;
    count *= extent;
  }
  if (!is_sensible)
    throw Error(ErrorCategory::input, where, "needed a shape of extents above 0 and up to 2^28 elements",
                fmt::format("got [{}]", fmt::join(shape, ", ")));
}

void check_spec(const SampleSpec& spec, const std::string& where) {
  check_shape(spec.shape, where);
  if (spec.classes < 0 || spec.targets < 0 || (spec.classes > 0) == (spec.targets > 0))
    throw Error(ErrorCategory::input, where, "needed a number of classes, or one of targets",
                fmt::format("{} classes and {} targets were given", spec.classes, spec.targets));
}

void Sample::set_image(std::span<const std::uint8_t> image, const device::ChannelNormalization& normalization) {
  if (images != nullptr) return images->take_stored(image, *this);
  if (pixels.empty()) return device::pixels_to_features(image, normalization, features);
  LOCKSTEP_CHECK_OP(image.size(), ==, pixels.size());
  std::memcpy(pixels.data(), image.data(), image.size());
}

}  // namespace lockstep::data
