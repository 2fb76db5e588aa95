// Which part of an image a sample shows.
#pragma once

#include <array>
#include <cstdint>

#include "data/image/image.h"
#include "data/sample.h"

namespace lockstep::data {

/// A part of `height` x `width` at a random place of the image with `padding` pixels around it; may reach beyond the
/// image by that much. Throws Error (data) where the padded image is smaller.
Rectangle choose_padded_crop(const SampleKey& key, int image_height, int image_width, int padding, int height,
                             int width);

/// Where `part` pixels in the middle of `whole` begin. Where that is half a pixel, at the even one of both sides, as
/// torchvision's CenterCrop.
std::int64_t center_offset(std::int64_t whole, std::int64_t part);

/// What part of an image a random resized crop may take.
struct ResizedCropRange {
  std::array<double, 2> area = {0.08, 1.0};          ///< as a share of the image's
  std::array<double, 2> ratio = {3.0 / 4, 4.0 / 3};  ///< width / height

  bool operator==(const ResizedCropRange&) const = default;
};

/// A part of random area, uniform in `range.area`, and random ratio, uniform in the logarithm, at a random place within
/// the image (Szegedy et al., "Going deeper with convolutions", 2015). As torchvision's RandomResizedCrop: ten tries to
/// find one that fits, then the largest in the middle whose ratio is within the range.
Rectangle choose_resized_crop(const SampleKey& key, int image_height, int image_width, const ResizedCropRange& range);

/// True for `probability` of the samples.
bool choose_flip(const SampleKey& key, double probability = 0.5);

/// A square of `size` around a random pixel, as much of it as lies within the image (DeVries and Taylor, "Improved
/// regularization of convolutional neural networks with cutout", 2017).
Rectangle choose_cutout(const SampleKey& key, int image_height, int image_width, int size);

}  // namespace lockstep::data
