// JPEG decoding with libjpeg-turbo.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "lockstep/data/image/image.h"

namespace lockstep::data {

/// Decodes a sequence of JPEG images, each in two steps: open() reads the header, so that the caller can choose the
/// part and the size; decode() delivers it. Keeps libjpeg's state and scratch memory between images. Not thread-safe.
///
/// Uses libjpeg's accurate integer inverse DCT (JDCT_ISLOW) and smooth chroma upsampling, the defaults of libjpeg,
/// TensorFlow and Pillow: pixels are equal to theirs on every machine.
class JpegDecoder {
 public:
  explicit JpegDecoder(std::int64_t max_pixels = kMaxPixels);  ///< refuses images of more than `max_pixels` pixels
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  /// Reads the header of `bytes`, which must stay valid until decode() returns. Throws Error (data) with libjpeg's
  /// message.
  ImageHeader open(std::span<const std::uint8_t> bytes);

  /// The size at 1/`denominator`: each extent divided and rounded up. `denominator` is 1, 2, 4 or 8.
  ImageHeader scaled(int denominator) const;

  /// Decodes `part` of the opened image at 1/`denominator` of its size into `memory`, and returns its view there.
  /// `part` is in pixels of the scaled image; the result equals a crop of the whole decoded image. Rows below it are
  /// not decoded; above and beside it, little more than the entropy decoding is done. `channels` is 1 (luma) or 3 (RGB;
  /// gray is repeated, CMYK converted).
  ///
  /// Throws Error (data) for everything that libjpeg reports as corrupt, whether an error or a warning, and for a
  /// truncated file.
  ImageView decode(const Rectangle& part, int denominator, int channels, Image& memory);

  /// Decodes the whole opened image.
  ImageView decode(int channels, Image& memory);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::data
