// Decoding of JPEG and PNG images, whose format is detected by content.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "lockstep/data/image/image.h"
#include "lockstep/data/image/orientation.h"

namespace lockstep::inline v0::data {

// Common to all encoded image formats.

/// The bytes of a file that is in a string.
inline std::span<const std::uint8_t> bytes_of(std::string_view file) {
  return {reinterpret_cast<const std::uint8_t*>(file.data()), file.size()};
}

/// The supported image file formats.
enum class ImageFormat { jpeg, png };

/// Detects the format from the first bytes; nullopt if it is not a supported format.
std::optional<ImageFormat> image_format_of(std::span<const std::uint8_t> bytes);

/// "a GIF image, which is not supported: convert it" if `bytes` start like an image file in an
/// unsupported format (GIF, BMP, WebP, TIFF); empty otherwise.
std::string_view unsupported_image_format(std::span<const std::uint8_t> bytes);

/// "jpeg" or "png".
std::string_view image_format_name(ImageFormat format);

/// The size of an image, from its header.
struct ImageHeader {
  int height = 0;    ///< in pixels
  int width = 0;     ///< in pixels
  int channels = 0;  ///< default number of decoded channels: 1 (gray) or 3 (RGB)

  bool operator==(const ImageHeader&) const = default;
};

/// The maximum number of pixels of an image, 67 million. A damaged header can state any size; this
/// limits the memory that each thread allocates: three bytes per pixel, and four more for a
/// progressive JPEG.
inline constexpr std::int64_t kMaxPixels = std::int64_t{1} << 26;

/// Throws Error (data) with the `message` of the library that rejected an image of `format`
/// ("JPEG").
[[noreturn]] void throw_damaged_image(std::string_view format, std::string_view message);

/// Throws Error (data) for more than `max_pixels`.
void check_image_size(std::string_view format, std::int64_t height, std::int64_t width,
                      std::int64_t max_pixels);

/// Decodes a sequence of JPEG images, each in two steps: open() reads the header, so that the
/// caller can choose the part and the size; decode() decodes it. Keeps libjpeg's state and scratch
/// memory between images. Not thread-safe.
///
/// Uses libjpeg's accurate integer inverse DCT (JDCT_ISLOW) and smooth chroma upsampling, the
/// defaults of libjpeg and Pillow, and dct_method="INTEGER_ACCURATE" of TensorFlow: pixels are
/// equal to theirs on every machine.
class JpegDecoder {
 public:
  /// Rejects images of more than `max_pixels` pixels.
  explicit JpegDecoder(std::int64_t max_pixels = kMaxPixels);
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  /// Reads the header of `bytes`, which must stay valid until decode() returns. Throws Error (data)
  /// with libjpeg's message.
  ImageHeader open(std::span<const std::uint8_t> bytes);

  /// Decodes `part` of the opened image at 1/`denominator` of its size, with extents rounded up,
  /// into `memory`, and returns its view there. `denominator` is 1, 2, 4 or 8. `part` is in pixels
  /// of the scaled image; the result equals a crop of the whole decoded image. Rows below it are
  /// not decoded; above and beside it, little more than the entropy decoding is done. `channels` is
  /// 1 (luma) or 3 (RGB; gray is repeated, CMYK converted).
  ///
  /// Throws Error (data) for everything that libjpeg reports as corrupt, whether an error or a
  /// warning, and for a truncated file.
  ImageView decode(const Rectangle& part, int denominator, int channels, Image& memory);

  /// Decodes the whole opened image.
  ImageView decode(int channels, Image& memory);

 private:
  class State;
  std::unique_ptr<State> state_;
};

// PNG.

/// Reads the header of a PNG image. Throws Error (data) with libpng's message.
ImageHeader read_png_header(std::span<const std::uint8_t> bytes,
                            std::int64_t max_pixels = kMaxPixels);

/// Decodes a PNG image of any kind (gray, palette, RGB, with or without alpha, 1 to 16 bits,
/// interlaced or not) into `memory`, which becomes [height, width, channels] with `channels` 1
/// (luma as in JPEG) or 3. 16-bit values are rounded to 8 bits; alpha is dropped. Throws Error
/// (data) with libpng's message, also for a file truncated after the last pixel.
ImageView decode_png(std::span<const std::uint8_t> bytes, int channels, Image& memory,
                     std::int64_t max_pixels = kMaxPixels);

// Either format.

/// The part of an image that the caller needs: `part`, in pixels of the opened image, at a
/// resolution of at least `height` x `width`. Decoders may return it larger.
struct WantedPart {
  Rectangle part;  ///< position in the opened image, in pixels
  int height = 0;  ///< the height in pixels to which the part will be resized
  int width = 0;   ///< the width in pixels to which the part will be resized
};

/// A decoded part of an image: `pixels`, and the position of the wanted part in them. At 1/2, 1/4
/// or 1/8 of the size, the part need not start or end at a pixel boundary.
struct DecodedPart {
  ImageView pixels;   ///< in the decoder's memory, valid until its next call
  double x = 0;       ///< left edge of the wanted part, in pixels of `pixels`
  double y = 0;       ///< top edge
  double width = 0;   ///< width of the wanted part
  double height = 0;  ///< height of the wanted part
};

/// Decodes a sequence of JPEG and PNG images, each in two steps like JpegDecoder, and turns JPEG
/// images upright that were stored in another orientation. Not thread-safe.
class ImageDecoder {
 public:
  /// Rejects images of more than `max_pixels` pixels.
  explicit ImageDecoder(std::int64_t max_pixels = kMaxPixels)
      : jpeg_(max_pixels), max_pixels_(max_pixels) {}

  /// Reads the header, whose size is that of the upright image; without `turns`, of the image as it
  /// is stored. `bytes` must stay valid until decode() returns. Throws Error (data) for a damaged
  /// image, and for an unknown format, with the first bytes.
  ImageHeader open(std::span<const std::uint8_t> bytes, bool turns = true);

  /// Decodes the whole opened image to `channels` (1 or 3). The view is valid until the next call.
  ImageView decode(int channels);

  /// Decodes what `wanted` needs with as little work as the format allows: for JPEG only the part,
  /// at the smallest sufficient size; for PNG the whole image. The view is valid until the next
  /// call.
  DecodedPart decode(const WantedPart& wanted, int channels);

 private:
  ImageFormat format_ = ImageFormat::jpeg;
  JpegDecoder jpeg_;
  std::int64_t max_pixels_;
  std::span<const std::uint8_t> bytes_;
  ImageHeader stored_;  // as it is stored
  Orientation orientation_;
  Image memory_;
  Image upright_;
};

}  // namespace lockstep::inline v0::data
