// PNG decoding with libpng.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/data/image/image.h"

namespace lockstep::data {

/// Reads the header of a PNG image. Throws Error (data) with libpng's message.
ImageHeader read_png_header(std::span<const std::uint8_t> bytes, std::int64_t max_pixels = kMaxPixels);

/// Decodes a PNG image of any kind (gray, palette, RGB, with or without alpha, 1 to 16 bits, interlaced or not) into
/// `memory`, which becomes [height, width, channels] with `channels` 1 (luma as in JPEG) or 3. 16-bit values are
/// rounded to 8 bits; alpha is dropped. Throws Error (data) with libpng's message, also for a file truncated after the
/// last pixel.
ImageView decode_png(std::span<const std::uint8_t> bytes, int channels, Image& memory,
                     std::int64_t max_pixels = kMaxPixels);

}  // namespace lockstep::data
