// Positions and weights of bilinear interpolation, shared by CPU loops and GPU kernels.
#pragma once

#include <cstdint>

#include "lockstep/model/layer/window.h"

namespace lockstep::inline v0::model {

/// One axis of an image that is enlarged by an integer factor. Pixel centers are at half-integers:
/// output i is at (i + 1/2) / size - 1/2 of the input, clamped to its first and last pixel.
/// Positions are exact, in units of 1 / (2 size) pixels; all numbers are below 2^32 as extents are
/// below 2^31.
struct BilinearAxis {
  std::uint32_t extent = 0;  ///< extent of the input
  std::uint32_t size = 1;    ///< factor on the extent

  /// What an output reads: (1 - weight) * input[first] + weight * input[second].
  struct Sources {
    std::uint32_t first;
    std::uint32_t second;
    float weight;
  };
  /// The sources of `output`.
  constexpr Sources sources(std::uint32_t output) const {
    const std::uint32_t at = position(output);
    const std::uint32_t first = at / (2 * size);
    return {first, first + 1 < extent ? first + 1 : first,
            static_cast<float>(at % (2 * size)) / static_cast<float>(2 * size)};
  }

  /// The first output that reads `input`, and one past the last.
  constexpr std::uint32_t begin(std::uint32_t input) const {
    return input == 0 ? 0 : input * size - size / 2;
  }
  /// See begin().
  constexpr std::uint32_t end(std::uint32_t input) const {
    return input + 1 == extent ? extent * size : (input + 1) * size + size / 2;
  }
  /// The weight of `input` in `output`, which reads it.
  constexpr float share(std::uint32_t output, std::uint32_t input) const {
    const std::uint32_t at = position(output);
    const std::uint32_t center = 2 * size * input;
    return 1 - static_cast<float>(at > center ? at - center : center - at) /
                   static_cast<float>(2 * size);
  }

 private:
  constexpr std::uint32_t position(std::uint32_t output) const {
    const std::uint32_t twice = 2 * output + 1;
    const std::uint32_t last = 2 * size * (extent - 1);
    if (twice < size) return 0;
    return twice - size < last ? twice - size : last;
  }
};

/// Images [batch, vertical.extent, horizontal.extent, channels] that are enlarged.
struct BilinearSpec {
  std::int64_t batch = 0;     ///< samples
  std::int64_t channels = 0;  ///< channels per image
  BilinearAxis vertical;      ///< rows
  BilinearAxis horizontal;    ///< columns

  std::int64_t output_height() const { return vertical.extent * std::int64_t{vertical.size}; }
  std::int64_t output_width() const { return horizontal.extent * std::int64_t{horizontal.size}; }
};

/// The enlargement of images of shape `input` by `size`.
inline BilinearSpec bilinear_spec(std::int64_t batch, const Shape& input, Extent2D size) {
  const auto axis = [](std::int64_t extent, std::int64_t factor) {
    return BilinearAxis{static_cast<std::uint32_t>(extent), static_cast<std::uint32_t>(factor)};
  };
  return {.batch = batch,
          .channels = input[2],
          .vertical = axis(input[0], size.height),
          .horizontal = axis(input[1], size.width)};
}

}  // namespace lockstep::inline v0::model
