// Images of another size.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/data/image/decode_image.h"
#include "lockstep/data/image/image.h"
#include "lockstep/data/image/pixel_sink.h"

namespace lockstep::data {

/// How a pixel of the output is made of those of the input. All have their centres at half pixels, as tf.image.resize
/// (TensorFlow 2) and Pillow have.
enum class Filter {
  bilinear,     ///< the four nearest pixels, whatever the scale: tf.image.resize's default
  antialiased,  ///< bilinear; where the image shrinks, over as much of it as a pixel covers: Pillow's and torchvision's
  area,         ///< the mean of what a pixel covers; where the image grows, the nearest pixel or a mix of two
};

/// Which pixels, with which weights, make each pixel along one axis. Weights are integers that sum to kWeightOne.
class ResizeAxis {
 public:
  static constexpr int kWeightBits = 14;               ///< weights are integers with so many bits behind the point
  static constexpr int kWeightOne = 1 << kWeightBits;  ///< the sum of the weights of one output

  /// `output` pixels of the stretch [begin, begin + extent) of `input` pixels. What the filter would take beyond the
  /// input's ends it takes at them (bilinear) or leaves out. Reuses this object's memory.
  void plan(Filter filter, int input, double begin, double extent, int output);

  int size() const { return static_cast<int>(first_.size()); }  ///< outputs
  /// The same number of weights for every output pixel; some are zero.
  int taps() const { return taps_; }
  /// The first input that `output` reads.
  int first(int output) const { return first_[static_cast<std::size_t>(output)]; }
  /// The weights of the inputs from first(output) on; as many for every output.
  const std::int16_t* weights(int output) const {
    return weights_.data() + static_cast<std::ptrdiff_t>(output) * taps_;
  }

 private:
  int taps_ = 0;
  std::vector<int> first_;
  std::vector<std::int16_t> weights_;
  std::vector<double> exact_;
};

/// Resizes one image after another; keeps its memory. For one thread.
///
/// Separable, in integers of 32 bits: weights have 14 fractional bits, pixels between the two passes 7, and what comes
/// out is rounded to the nearest byte. It lies within 0.6 of the exact value where the image shrinks to no less than a
/// tenth, and sums of integers have the same bits whatever the compiler and the machine.
class Resizer {
 public:
  /// Writes `part` of an image, mirrored where `flip` says so, at the sink's size. Vertical first: the pass over long
  /// rows is the one that runs at vector speed, and the other has no more rows than the output.
  void resize(const DecodedPart& part, Filter filter, bool flip, PixelSink& sink);

 private:
  ResizeAxis columns_;
  ResizeAxis rows_;
  std::vector<std::int32_t> sums_;
  std::vector<std::int16_t> row_;
};

/// The whole of `image` as a part of itself.
DecodedPart whole(const ImageView& image);

}  // namespace lockstep::data
