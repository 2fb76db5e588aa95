// Random changes of color.
#pragma once

#include "data/image/image.h"
#include "data/sample.h"

namespace lockstep::data {

/// How strongly colors may change: each factor is uniform in [max(0, 1 - strength), 1 + strength]. 0 changes nothing.
struct ColorJitterRange {
  double brightness = 0;  ///< largest change of the factor, as a part of 1
  double contrast = 0;    ///< likewise
  double saturation = 0;  ///< likewise

  /// Whether anything is to be changed.
  bool any() const { return brightness > 0 || contrast > 0 || saturation > 0; }
  bool operator==(const ColorJitterRange&) const = default;
};

/// Factors for one image; 1 changes nothing. Multiples of 2^-10, so that the arithmetic is of integers and the same on
/// every machine.
struct ColorJitter {
  double brightness = 1;  ///< factor of all values
  double contrast = 1;    ///< factor of the distance from the image's mean gray
  double saturation = 1;  ///< factor of the distance from each pixel's gray
};

/// Factors within `range`, chosen by the sample's key.
ColorJitter choose_color_jitter(const SampleKey& key, const ColorJitterRange& range);

/// Changes `image` in place: brightness multiplies pixels, contrast their distance from the image's mean luma,
/// saturation their distance from their own luma (torchvision's definitions, in this order), each rounded and cut to
/// 0 .. 255. Saturation leaves an image of one channel as it is.
void jitter_colors(const ColorJitter& jitter, const ImageSpan& image);

}  // namespace lockstep::data
