#include "data/image/color_jitter.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "data/image/sample_random.h"

namespace lockstep::data {
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

/// `value` moved from or towards `anchor`. The shift rounds down, also of negative numbers.
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

}  // namespace lockstep::data
