#include "lockstep/train/tensorboard/confusion_image.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::train {
namespace {

constexpr std::int64_t kMaxClasses = 2000;
constexpr int kUsualPixels = 512;  // side of the image
constexpr int kMaxPixels = 2048;
constexpr int kMinCellPixels = 8;

constexpr double kNone[] = {255, 255, 255};  // red, green, blue
constexpr double kAll[] = {8, 48, 107};

int cell_pixels(int classes) {
  const int legible = std::max(kUsualPixels / classes, kMinCellPixels);
  return std::max(1, std::min(legible, kMaxPixels / classes));
}

void draw_cell(double fraction, std::uint8_t* from, int pixels) {
  for (int pixel = 0; pixel < pixels; ++pixel)
    for (std::size_t channel = 0; channel < std::size(kNone); ++channel)
      *from++ = static_cast<std::uint8_t>(
          std::lround(std::lerp(kNone[channel], kAll[channel], fraction)));
}

/// Returns the fraction of `count` in the sum of its row. A user-defined metric may have any
/// numbers.
double fraction_of(double count, double sum) {
  const double fraction = count / sum;
  return fraction >= 0 ? std::min(fraction, 1.0) : 0;  // not NaN
}

}  // namespace

bool has_image(const model::MetricValue& value) {
  return value.shape.size() == 2 && value.shape[0] == value.shape[1] && value.shape[0] > 0 &&
         value.shape[0] <= kMaxClasses &&
         std::ssize(value.values) == value.shape[0] * value.shape[1];
}

data::Image confusion_image(const model::MetricValue& matrix) {
  LOCKSTEP_CHECK(has_image(matrix));
  const auto classes = static_cast<int>(matrix.shape[0]);
  const int cell = cell_pixels(classes);
  const int side = classes * cell;
  data::Image image;
  image.reshape(side, side, static_cast<int>(std::size(kNone)));
  const data::ImageSpan pixels = image.span();
  std::span<const double> rest = matrix.values;
  for (int label = 0; label < classes; ++label) {
    const auto row = rest.first(static_cast<std::size_t>(classes));
    rest = rest.subspan(row.size());
    const double sum = std::accumulate(row.begin(), row.end(), 0.0);
    const std::uint8_t* const first = pixels.row(label * cell);
    for (int predicted = 0; predicted < classes; ++predicted)
      draw_cell(fraction_of(row[static_cast<std::size_t>(predicted)], sum),
                pixels.at(predicted * cell, label * cell), cell);
    for (int y = 1; y < cell; ++y) std::copy_n(first, pixels.stride, pixels.row(label * cell + y));
  }
  return image;
}

}  // namespace lockstep::inline v0::train
