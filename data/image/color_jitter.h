// Random changes of color.
#pragma once

#include "data/image/image.h"
#include "data/sample.h"

namespace lockstep::data {

/// How strongly colors may change: each factor is uniform in [max(0, 1 - strength), 1 + strength]. 0 changes nothing.
struct ColorJitterRange {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;

  bool any() const { return brightness > 0 || contrast > 0 || saturation > 0; }
  bool operator==(const ColorJitterRange&) const = default;
};

/// Factors for one image; 1 changes nothing. Multiples of 2^-10, so that the arithmetic is of integers and the same on
/// every machine.
struct ColorJitter {
  double brightness = 1;
  double contrast = 1;
  double saturation = 1;
};

ColorJitter choose_color_jitter(const SampleKey& key, const ColorJitterRange& range);

/// Changes `image` in place: brightness multiplies pixels, contrast their distance from the image's mean luma,
/// saturation their distance from their own luma (torchvision's definitions, in this order), each rounded and cut to
/// 0 .. 255. Saturation leaves an image of one channel as it is.
void jitter_colors(const ColorJitter& jitter, const ImageSpan& image);

}  // namespace lockstep::data
