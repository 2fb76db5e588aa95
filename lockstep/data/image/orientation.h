// The orientation of a photo, which a camera stores beside the pixels.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/data/image/image.h"

namespace lockstep::inline v0::data {

/// How the upright image results from the stored one: rows and columns are swapped if `swaps`, and
/// each axis of the stored image is reversed if flipped.
struct Orientation {
  bool swaps = false;    ///< the columns of the upright image are the rows of the stored one
  bool flips_x = false;  ///< the columns of the stored image are in reverse order
  bool flips_y = false;  ///< the rows of the stored image are in reverse order

  /// The orientation with this number in EXIF, 1 to 8; upright for any other number.
  static Orientation of_exif(int number);
  /// The orientation that the EXIF block of the JPEG file `bytes` states. Upright without such a
  /// block, and for a damaged one, which Pillow ignores, too.
  static Orientation of_jpeg(std::span<const std::uint8_t> bytes);

  /// Whether the stored image is upright.
  bool is_upright() const { return !swaps && !flips_x && !flips_y; }
  /// The part of the stored image of `width` x `height` that becomes `part` of the upright one.
  Rectangle stored(const Rectangle& part, int width, int height) const;
  /// Writes the upright image of `stored` to `memory`, and returns its view there.
  ImageView turn(const ImageView& stored, Image& memory) const;

  bool operator==(const Orientation&) const = default;
};

}  // namespace lockstep::inline v0::data
