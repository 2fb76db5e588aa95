// Encoding of images that the program draws.
#pragma once

#include <string>

#include "lockstep/data/image/image.h"

namespace lockstep::inline v0::data {

/// `image`, of 1 (gray) or 3 (RGB) channels, as a PNG file. Throws Error (data) with libpng's
/// message.
std::string to_png(const ImageView& image);

}  // namespace lockstep::inline v0::data
