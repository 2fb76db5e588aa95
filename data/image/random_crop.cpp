#include "data/image/random_crop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/image/sample_random.h"
#include "device/error.h"

namespace lockstep::data {
namespace {

constexpr int kTries = 10;

/// e^x for |x| < 2, to the last bits of a double, of additions and multiplications alone: libm's differ in their last
/// bit from machine to machine, and so could, one day, a crop.
double exponential(double x) {
  double sum = 1;
  for (int term = 24; term >= 1; --term) sum = 1 + sum * x / term;
  return sum;
}

int rounded(double value) { return static_cast<int>(std::lround(value)); }

Rectangle largest_in_the_middle(int image_height, int image_width, const ResizedCropRange& range) {
  const double image_ratio = static_cast<double>(image_width) / image_height;
  int height = image_height;
  int width = image_width;
  if (image_ratio < range.ratio[0]) height = std::clamp(rounded(image_width / range.ratio[0]), 1, image_height);
  if (image_ratio > range.ratio[1]) width = std::clamp(rounded(image_height * range.ratio[1]), 1, image_width);
  return {(image_width - width) / 2, (image_height - height) / 2, width, height};
}

}  // namespace

Rectangle choose_padded_crop(const SampleKey& key, int image_height, int image_width, int padding, int height,
                             int width) {
  const int free_rows = image_height + 2 * padding - height;
  const int free_columns = image_width + 2 * padding - width;
  if (free_rows < 0 || free_columns < 0) {
    throw Error(ErrorCategory::data, "random crop",
                fmt::format("needed images of at least {} x {} for crops of {} x {} with padding {}",
                            height - 2 * padding, width - 2 * padding, height, width, padding),
                fmt::format("one is {} x {}", image_height, image_width));
  }
  SampleRandom random("random crop", key);
  const int y = random.below(free_rows + 1) - padding;
  const int x = random.below(free_columns + 1) - padding;
  return {x, y, width, height};
}

std::int64_t center_offset(std::int64_t whole, std::int64_t part) {
  return std::llrint(static_cast<double>(whole - part) / 2);
}

Rectangle choose_resized_crop(const SampleKey& key, int image_height, int image_width, const ResizedCropRange& range) {
  SampleRandom random("random resized crop", key);
  const double area = static_cast<double>(image_height) * image_width;
  // The logarithms are of the range, not of the sample: rounded to a float they are the same on every machine.
  const double low = static_cast<float>(std::log(range.ratio[0]));
  const double high = static_cast<float>(std::log(range.ratio[1]));
  for (int i = 0; i < kTries; ++i) {
    const double wanted = area * random.between(range.area[0], range.area[1]);
    const double ratio = exponential(random.between(low, high));
    const int width = rounded(std::sqrt(wanted * ratio));
    const int height = rounded(std::sqrt(wanted / ratio));
    if (width < 1 || height < 1 || width > image_width || height > image_height) continue;
    const int y = random.below(image_height - height + 1);
    const int x = random.below(image_width - width + 1);
    return {x, y, width, height};
  }
  return largest_in_the_middle(image_height, image_width, range);
}

bool choose_flip(const SampleKey& key, double probability) { return SampleRandom("flip", key).unit() < probability; }

Rectangle choose_cutout(const SampleKey& key, int image_height, int image_width, int size) {
  SampleRandom random("cutout", key);
  const int top = random.below(image_height) - size / 2;
  const int left = random.below(image_width) - size / 2;
  const int y = std::max(top, 0);
  const int x = std::max(left, 0);
  return {x, y, std::min(left + size, image_width) - x, std::min(top + size, image_height) - y};
}

}  // namespace lockstep::data
