#include "lockstep/data/image/resize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::data {
namespace {

/// Fractional bits of pixels between the passes: 255 then has 15 bits.
constexpr int kBetweenBits = 7;
constexpr int kDownBits = ResizeAxis::kWeightBits - kBetweenBits;
constexpr int kOutBits = ResizeAxis::kWeightBits + kBetweenBits;
constexpr std::int32_t kDownHalf = 1 << (kDownBits - 1);
constexpr std::int32_t kOutHalf = 1 << (kOutBits - 1);

/// Weight of an input pixel whose center is `distance` from the output pixel's, both in input
/// pixels; not normalized. `scale` is the extent of an output pixel.
double weight_at(Filter filter, double distance, double scale) {
  const double away = std::abs(distance);
  switch (filter) {
    case Filter::bilinear:
      return std::max(0.0, 1 - away);
    case Filter::antialiased:
      return std::max(0.0, 1 - away / std::max(scale, 1.0));
    case Filter::area:  // the part of the input pixel that the output pixel covers
      return std::max(0.0, std::min({scale, 1.0, (scale + 1) / 2 - away}));
  }
  return 0;
}

/// The distance up to which input pixels contribute to an output pixel.
double reach(Filter filter, double scale) {
  switch (filter) {
    case Filter::bilinear:
      return 1;
    case Filter::antialiased:
      return std::max(scale, 1.0);
    case Filter::area:
      return (scale + 1) / 2;
  }
  return 0;
}

/// Integers in the proportions of `exact` that sum to kWeightOne. Their partial sums are rounded,
/// not the weights: thus none is off by more than 1, for any number of weights.
void quantize(const std::vector<double>& exact, std::int16_t* weights) {
  double sum = 0;
  for (const double weight : exact) sum += weight;
  double until = 0;
  int previous = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    until += exact[i];
    const int rounded = static_cast<int>(std::floor(until / sum * ResizeAxis::kWeightOne + 0.5));
    weights[i] = static_cast<std::int16_t>(rounded - previous);
    previous = rounded;
  }
}

/// sums[i] = the weighted sum of a column of `taps` bytes, `stride` apart.
void add_rows(const std::uint8_t* top, std::ptrdiff_t stride, const std::int16_t* weights, int taps,
              std::span<std::int32_t> sums) {
  const std::size_t count = sums.size();
  std::int32_t* to = sums.data();
  // Processes pairs of rows, so that a bilinear resize passes over its sums once.
  for (int tap = 0; tap < taps; tap += 2) {
    const std::uint8_t* upper = top + tap * stride;
    const std::uint8_t* lower = tap + 1 < taps ? upper + stride : upper;
    const std::int32_t upper_weight = weights[tap];
    const std::int32_t lower_weight = tap + 1 < taps ? weights[tap + 1] : 0;
    if (tap == 0) {
      for (std::size_t i = 0; i < count; ++i)
        to[i] = upper[i] * upper_weight + lower[i] * lower_weight + kDownHalf;
    } else {
      for (std::size_t i = 0; i < count; ++i)
        to[i] += upper[i] * upper_weight + lower[i] * lower_weight;
    }
  }
}

/// Three channels and an unused fourth number, computed together. A GCC and clang extension:
/// neither vectorizes plain loops over three-byte pixels on all targets, and this is half the cost
/// of a resize.
using Between4 [[gnu::vector_size(4 * sizeof(std::int16_t))]] = std::int16_t;
using Sum4 [[gnu::vector_size(4 * sizeof(std::int32_t))]] = std::int32_t;
using Byte4 [[gnu::vector_size(4)]] = std::uint8_t;

template <int kTaps>
Byte4 weighted_color(const std::int16_t* from, const std::int16_t* weights, int taps) {
  Sum4 sums = {kOutHalf, kOutHalf, kOutHalf, kOutHalf};
  for (int tap = 0; tap < (kTaps > 0 ? kTaps : taps); ++tap, from += 3) {
    Between4 color;
    std::memcpy(&color, from, sizeof(color));
    sums += __builtin_convertvector(color, Sum4) * std::int32_t{weights[tap]};
  }
  return __builtin_convertvector(sums >> kOutBits, Byte4);
}

/// The pixels of one output row. `kTaps` is the number of weights if it is a compile-time constant,
/// such as 2 for a bilinear resize; otherwise 0.
template <int kTaps>
void resize_colors(const std::int16_t* row, const ResizeAxis& columns, bool flip,
                   std::uint8_t* to) {
  const int last = columns.size() - 1;
  for (int x = 0; x <= last; ++x, to += 3) {
    const int column = flip ? last - x : x;
    const std::int16_t* from = row + std::ptrdiff_t{columns.first(column)} * 3;
    const Byte4 color = weighted_color<kTaps>(from, columns.weights(column), columns.taps());
    // The fourth byte is overwritten by the next pixel.
    std::memcpy(to, &color, x < last ? 4 : 3);
  }
}

void resize_grays(const std::int16_t* row, const ResizeAxis& columns, bool flip, std::uint8_t* to) {
  const int last = columns.size() - 1;
  for (int x = 0; x <= last; ++x) {
    const int column = flip ? last - x : x;
    const std::int16_t* from = row + columns.first(column);
    const std::int16_t* weights = columns.weights(column);
    std::int32_t sum = kOutHalf;
    for (int tap = 0; tap < columns.taps(); ++tap) sum += from[tap] * weights[tap];
    to[x] = static_cast<std::uint8_t>(sum >> kOutBits);
  }
}

using ResizeRow = void (*)(const std::int16_t* row, const ResizeAxis& columns, bool flip,
                           std::uint8_t* to);

ResizeRow resize_row_for(int channels, int taps) {
  if (channels == 1) return resize_grays;
  return taps == 2 ? resize_colors<2> : resize_colors<0>;
}

}  // namespace

void ResizeAxis::plan(Filter filter, int input, double begin, double extent, int output) {
  constexpr double kRounding = 1e-6;  // tolerance for rounding in the caller's interval
  LOCKSTEP_CHECK(input > 0 && output > 0 && extent > 0 && begin >= 0 &&
                 begin + extent <= input + kRounding);
  const double scale = extent / output;
  const double away = reach(filter, scale);
  // Maximum number of pixel centers within the filter's reach; an axis may have fewer pixels.
  taps_ = std::min(static_cast<int>(std::ceil(2 * away)), input);
  first_.resize(output);
  weights_.resize(static_cast<std::size_t>(output) * taps_);
  exact_.resize(taps_);
  for (int i = 0; i < output; ++i) {
    const double middle = begin + (i + 0.5) * scale;
    // Between the centers of the outermost pixels, bilinear weights sum to 1; beyond them, only the
    // outermost pixel counts.
    const double center =
        filter == Filter::bilinear ? std::clamp(middle, 0.5, input - 0.5) : middle;
    const int leftmost = static_cast<int>(std::floor(center - away - 0.5)) + 1;
    const int first = std::clamp(leftmost, 0, input - taps_);
    for (int tap = 0; tap < taps_; ++tap)
      exact_[tap] = weight_at(filter, first + tap + 0.5 - center, scale);
    first_[i] = first;
    quantize(exact_, weights_.data() + static_cast<std::ptrdiff_t>(i) * taps_);
  }
}

void Resizer::resize(const DecodedPart& part, Filter filter, bool flip, PixelSink& sink) {
  const ImageView& image = part.pixels;
  LOCKSTEP_CHECK_OP(image.channels, ==, sink.channels());
  columns_.plan(filter, image.width, part.x, part.width, sink.width());
  rows_.plan(filter, image.height, part.y, part.height, sink.height());
  const std::size_t row_size = static_cast<std::size_t>(image.width) * image.channels;
  sums_.resize(row_size);
  row_.resize(row_size + 1);  // one value after the last color is read and ignored
  const ResizeRow resize_row = resize_row_for(image.channels, columns_.taps());
  for (int y = 0; y < sink.height(); ++y) {
    add_rows(image.row(rows_.first(y)), image.stride, rows_.weights(y), rows_.taps(), sums_);
    for (std::size_t i = 0; i < row_size; ++i)
      row_[i] = static_cast<std::int16_t>(sums_[i] >> kDownBits);
    resize_row(row_.data(), columns_, flip, sink.begin_row(y));
    sink.finish_row(y);
  }
}

DecodedPart whole(const ImageView& image) {
  return {image, 0, 0, static_cast<double>(image.width), static_cast<double>(image.height)};
}

}  // namespace lockstep::inline v0::data
