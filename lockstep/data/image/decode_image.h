// Encoded images of any known format, told by content.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/data/image/decode_jpeg.h"
#include "lockstep/data/image/image.h"

namespace lockstep::data {

/// What an image must yield at least: `part`, in pixels of the image as stored, reduced to no less than `height` x
/// `width`. Decoders may deliver it larger.
struct WantedPart {
  Rectangle part;  ///< of the image, in pixels
  int height = 0;  ///< in pixels, to which the part is going to be resized
  int width = 0;   ///< in pixels, likewise
};

/// A part of an image as decoded: `pixels`, and the place of the wanted part in them. At 1/2, 1/4 or 1/8 of the size a
/// part need not begin or end where a pixel does.
struct DecodedPart {
  ImageView pixels;   ///< in the decoder's memory, until its next call
  double x = 0;       ///< left edge of the wanted part, in pixels of `pixels`
  double y = 0;       ///< upper edge
  double width = 0;   ///< of the wanted part
  double height = 0;  ///< of the wanted part
};

/// Decodes JPEG and PNG, one image after another, each in two steps as JpegDecoder does. For one thread.
class ImageDecoder {
 public:
  /// Refuses images of more than `max_pixels` pixels.
  explicit ImageDecoder(std::int64_t max_pixels = kMaxPixels) : jpeg_(max_pixels), max_pixels_(max_pixels) {}

  /// Reads the header. `bytes` must stay where they are until a decode returns. Throws Error (data) for a damaged
  /// image, and for another format, with the first bytes.
  ImageHeader open(std::span<const std::uint8_t> bytes);

  /// Decodes the whole opened image to `channels` (1 or 3). The view is valid until the next call.
  ImageView decode(int channels);

  /// Decodes what `wanted` needs, with as little work as the format allows: of a JPEG only the part, and at the
  /// smallest size that is large enough; of a PNG all. The view is valid until the next call.
  DecodedPart decode(const WantedPart& wanted, int channels);

 private:
  ImageFormat format_ = ImageFormat::jpeg;
  JpegDecoder jpeg_;
  std::int64_t max_pixels_;
  std::span<const std::uint8_t> bytes_;
  Image memory_;
};

}  // namespace lockstep::data
