#include "lockstep/data/image/augmentation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::data {

SampleRandom::SampleRandom(std::string_view purpose, const SampleKey& key)
    : generator_(random_key(key.seed, purpose, static_cast<std::uint64_t>(key.epoch))),
      record_id_(static_cast<std::uint64_t>(key.record_id)) {}

double SampleRandom::between(double low, double high) { return low + (high - low) * unit(); }

std::uint32_t SampleRandom::word() {
  if (used_ == words_.size()) {
    words_ = generator_.block(record_id_, blocks_++);
    used_ = 0;
  }
  return words_[used_++];
}

namespace {

constexpr int kFactorBits = 10;
constexpr int kFactorOne = 1 << kFactorBits;
constexpr int kFactorHalf = kFactorOne / 2;

int fixed(double factor) { return static_cast<int>(std::lround(factor * kFactorOne)); }

int luma(const std::uint8_t* pixel, int channels) {
  if (channels == 1) return pixel[0];
  const auto& [red, green, blue] = kLumaThousandths;
  return (red * pixel[0] + green * pixel[1] + blue * pixel[2] + 500) / 1000;
}

/// `value` moved away from or towards `anchor`. The shift rounds down, also for negative numbers.
std::uint8_t blend(int value, int anchor, int factor) {
  const int moved = anchor + (((value - anchor) * factor + kFactorHalf) >> kFactorBits);
  return static_cast<std::uint8_t>(std::clamp(moved, 0, 255));
}

void blend_all(const ImageSpan& image, int anchor, int factor) {
  for (int y = 0; y < image.height; ++y) {
    std::uint8_t* row = image.row(y);
    for (int i = 0; i < image.width * image.channels; ++i) row[i] = blend(row[i], anchor, factor);
  }
}

int mean_luma(const ImageSpan& image) {
  std::int64_t sum = 0;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) sum += luma(image.at(x, y), image.channels);
  }
  const std::int64_t pixels = std::int64_t{image.height} * image.width;
  return static_cast<int>((sum + pixels / 2) / pixels);
}

void saturate(const ImageSpan& image, int factor) {
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      std::uint8_t* pixel = image.at(x, y);
      const int gray = luma(pixel, 3);
      for (int c = 0; c < 3; ++c) pixel[c] = blend(pixel[c], gray, factor);
    }
  }
}

}  // namespace

ColorJitter choose_color_jitter(const SampleKey& key, const ColorJitterRange& range) {
  SampleRandom random("color jitter", key);
  const auto factor = [&random](double strength) {
    const double chosen = random.between(std::max(0.0, 1 - strength), 1 + strength);
    return static_cast<double>(fixed(chosen)) / kFactorOne;
  };
  const double brightness = factor(range.brightness);
  const double contrast = factor(range.contrast);
  return {brightness, contrast, factor(range.saturation)};
}

void jitter_colors(const ColorJitter& jitter, const ImageSpan& image) {
  if (jitter.brightness != 1) blend_all(image, 0, fixed(jitter.brightness));
  if (jitter.contrast != 1) blend_all(image, mean_luma(image), fixed(jitter.contrast));
  if (jitter.saturation != 1 && image.channels == 3) saturate(image, fixed(jitter.saturation));
}

namespace {

constexpr int kTries = 10;

/// e^x for |x| < 2, to the last bits of a double, with additions and multiplications only: libm
/// results differ in the last bit between machines, which could change a crop.
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
  if (image_ratio < range.ratio[0])
    height = std::clamp(rounded(image_width / range.ratio[0]), 1, image_height);
  if (image_ratio > range.ratio[1])
    width = std::clamp(rounded(image_height * range.ratio[1]), 1, image_width);
  return {(image_width - width) / 2, (image_height - height) / 2, width, height};
}

}  // namespace

Rectangle choose_padded_crop(const SampleKey& key, int image_height, int image_width, int padding,
                             int height, int width) {
  const int free_rows = image_height + 2 * padding - height;
  const int free_columns = image_width + 2 * padding - width;
  if (free_rows < 0 || free_columns < 0) {
    throw Error(
        ErrorCategory::data, "random crop",
        fmt::format("expected images of at least {} x {} for crops of {} x {} with padding {}",
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

Rectangle choose_resized_crop(const SampleKey& key, int image_height, int image_width,
                              const ResizedCropRange& range) {
  SampleRandom random("random resized crop", key);
  const double area = static_cast<double>(image_height) * image_width;
  // These are logarithms of the range, not of the sample; rounded to float, they are the same on
  // every machine.
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

std::optional<Rectangle> choose_erasing(const SampleKey& key, int image_height, int image_width,
                                        double probability) {
  SampleRandom random("erasing", key);
  if (random.unit() >= probability) return std::nullopt;
  const double area = static_cast<double>(image_height) * image_width;
  const double widest = static_cast<float>(std::log(3.3));
  const double narrowest = static_cast<float>(std::log(0.3));
  for (int i = 0; i < kTries; ++i) {
    const double wanted = area * random.between(0.02, 0.33);
    const double ratio = exponential(random.between(narrowest, widest));
    const int height = rounded(std::sqrt(wanted * ratio));
    const int width = rounded(std::sqrt(wanted / ratio));
    if (width < 1 || height < 1 || width >= image_width || height >= image_height) continue;
    const int y = random.below(image_height - height + 1);
    const int x = random.below(image_width - width + 1);
    return Rectangle{x, y, width, height};
  }
  return std::nullopt;
}

bool choose_flip(const SampleKey& key, double probability) {
  return SampleRandom("flip", key).unit() < probability;
}

Rectangle choose_cutout(const SampleKey& key, int image_height, int image_width, int size) {
  SampleRandom random("cutout", key);
  const int top = random.below(image_height) - size / 2;
  const int left = random.below(image_width) - size / 2;
  const int y = std::max(top, 0);
  const int x = std::max(left, 0);
  return {x, y, std::min(left + size, image_width) - x, std::min(top + size, image_height) - y};
}

}  // namespace lockstep::inline v0::data
