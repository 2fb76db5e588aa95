// Image resizing.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/data/image/decode_image.h"
#include "lockstep/data/image/image.h"
#include "lockstep/data/image/recipe.h"

namespace lockstep::inline v0::data {

/// The input pixels and weights of each output pixel along one axis. Weights are integers that sum
/// to kWeightOne.
class ResizeAxis {
 public:
  static constexpr int kWeightBits = 14;  ///< number of fractional bits of the weights
  /// The sum of the weights of one output pixel.
  static constexpr int kWeightOne = 1 << kWeightBits;

  /// Plans `output` pixels from the interval [begin, begin + extent) of `input` pixels. Beyond the
  /// ends of the input, the filter repeats the edge pixel (bilinear) or drops the weight. Reuses
  /// this object's memory.
  void plan(Filter filter, int input, double begin, double extent, int output);

  int size() const { return static_cast<int>(first_.size()); }  ///< number of output pixels
  /// Number of weights per output pixel, the same for all; some may be zero.
  int taps() const { return taps_; }
  /// The first input pixel that `output` reads.
  int first(int output) const { return first_[static_cast<std::size_t>(output)]; }
  /// The taps() weights of the inputs starting at first(output).
  const std::int16_t* weights(int output) const {
    return weights_.data() + static_cast<std::ptrdiff_t>(output) * taps_;
  }

 private:
  int taps_ = 0;
  std::vector<int> first_;
  std::vector<std::int16_t> weights_;
  std::vector<double> exact_;
};

/// Resizes a sequence of images and keeps its memory. Not thread-safe.
///
/// Separable, in 32-bit integers: weights have 14 fractional bits, pixels between the two passes
/// have 7, and the result is rounded to the nearest byte. It is within 0.6 of the exact value for
/// downscaling to no less than a tenth. Integer sums have the same bits with every compiler and
/// machine.
class Resizer {
 public:
  /// Writes `part` of an image at the sink's size, mirrored if `flip`. The vertical pass is first:
  /// it works on long rows at vector speed, and the horizontal pass then has only the output rows.
  void resize(const DecodedPart& part, Filter filter, bool flip, PixelSink& sink);

 private:
  ResizeAxis columns_;
  ResizeAxis rows_;
  std::vector<std::int32_t> sums_;
  std::vector<std::int16_t> row_;
};

/// The whole `image` as a DecodedPart.
DecodedPart whole(const ImageView& image);

}  // namespace lockstep::inline v0::data
