// PNG, by libpng.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/data/image/image.h"

namespace lockstep::data {

/// The header of a PNG image. Throws Error (data) with what libpng said.
ImageHeader read_png_header(std::span<const std::uint8_t> bytes, std::int64_t max_pixels = kMaxPixels);

/// Decodes a PNG image of any kind (gray, palette, RGB, with or without alpha, 1 to 16 bits, interlaced or not) into
/// `memory`, which becomes [height, width, channels] with `channels` 1 (luma as JPEG has it) or 3. 16 bits are rounded
/// to 8, alpha is dropped. Throws Error (data) with what libpng said, also for a file cut short behind the last pixel.
ImageView decode_png(std::span<const std::uint8_t> bytes, int channels, Image& memory,
                     std::int64_t max_pixels = kMaxPixels);

}  // namespace lockstep::data
