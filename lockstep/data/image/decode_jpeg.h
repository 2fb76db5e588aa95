// JPEG, by libjpeg-turbo.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "lockstep/data/image/image.h"

namespace lockstep::data {

/// Decodes one JPEG after another, each in two steps: `open` reads the header, so that the caller can choose what part
/// it wants and how large; `decode` delivers it. Keeps libjpeg's state and scratch memory from image to image. For one
/// thread.
///
/// The inverse DCT is libjpeg's accurate integer one (JDCT_ISLOW) and chroma is upsampled smoothly, the defaults of
/// libjpeg, of TensorFlow and of Pillow: pixels equal theirs, on every machine.
class JpegDecoder {
 public:
  explicit JpegDecoder(std::int64_t max_pixels = kMaxPixels);  ///< refuses images of more than `max_pixels` pixels
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  /// Reads the header of `bytes`, which must stay where they are until `decode` returns. Throws Error (data) with what
  /// libjpeg said.
  ImageHeader open(std::span<const std::uint8_t> bytes);

  /// The size at 1/`denominator`: each extent divided, rounded up. `denominator` is 1, 2, 4 or 8.
  ImageHeader scaled(int denominator) const;

  /// Decodes `part` of the opened image at 1/`denominator` of its size into `memory`, and returns where in it the part
  /// lies. `part` counts pixels of the scaled image; its pixels are those of the whole scaled image, decoded and then
  /// cropped. Rows below it are not decoded, and of what lies above and beside it little more than the entropy code.
  /// `channels` is 1 (luma) or 3 (RGB; gray is repeated, CMYK converted).
  ///
  /// Throws Error (data) for whatever libjpeg calls corrupt, be it an error or a warning, and for a file cut short.
  ImageView decode(const Rectangle& part, int denominator, int channels, Image& memory);

  /// Decodes the whole opened image.
  ImageView decode(int channels, Image& memory);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::data
