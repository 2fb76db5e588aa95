// Crop, padding and flip in one copy.
#pragma once

#include "data/image/image.h"
#include "data/image/pixel_sink.h"

namespace lockstep::data {

/// Copies `part` of `image`, mirrored where `flip` says so, to the sink. The part has the sink's size and may reach
/// beyond the image: what lies there is black. The image has the sink's channels.
void copy_part(const ImageView& image, const Rectangle& part, bool flip, PixelSink& sink);

}  // namespace lockstep::data
