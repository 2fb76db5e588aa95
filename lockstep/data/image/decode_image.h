// Decoding of images, with the format detected by content.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/data/image/decode_jpeg.h"
#include "lockstep/data/image/image.h"

namespace lockstep::data {

/// The part of an image that the caller needs: `part`, in pixels of the stored image, at a resolution of at least
/// `height` x `width`. Decoders may return it larger.
struct WantedPart {
  Rectangle part;  ///< of the stored image, in pixels
  int height = 0;  ///< the height in pixels to which the part will be resized
  int width = 0;   ///< the width in pixels to which the part will be resized
};

/// A decoded part of an image: `pixels`, and the position of the wanted part in them. At 1/2, 1/4 or 1/8 of the size,
/// the part need not start or end at a pixel boundary.
struct DecodedPart {
  ImageView pixels;   ///< in the decoder's memory, valid until its next call
  double x = 0;       ///< left edge of the wanted part, in pixels of `pixels`
  double y = 0;       ///< top edge
  double width = 0;   ///< of the wanted part
  double height = 0;  ///< of the wanted part
};

/// Decodes a sequence of JPEG and PNG images, each in two steps like JpegDecoder. Not thread-safe.
class ImageDecoder {
 public:
  /// Refuses images of more than `max_pixels` pixels.
  explicit ImageDecoder(std::int64_t max_pixels = kMaxPixels) : jpeg_(max_pixels), max_pixels_(max_pixels) {}

  /// Reads the header. `bytes` must stay valid until decode() returns. Throws Error (data) for a damaged image, and for
  /// an unknown format, with the first bytes.
  ImageHeader open(std::span<const std::uint8_t> bytes);

  /// Decodes the whole opened image to `channels` (1 or 3). The view is valid until the next call.
  ImageView decode(int channels);

  /// Decodes what `wanted` needs with as little work as the format allows: for JPEG only the part, at the smallest
  /// sufficient size; for PNG the whole image. The view is valid until the next call.
  DecodedPart decode(const WantedPart& wanted, int channels);

 private:
  ImageFormat format_ = ImageFormat::jpeg;
  JpegDecoder jpeg_;
  std::int64_t max_pixels_;
  std::span<const std::uint8_t> bytes_;
  Image memory_;
};

}  // namespace lockstep::data
