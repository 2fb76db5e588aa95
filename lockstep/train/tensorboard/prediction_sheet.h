// Images with the predictions of a network, as one picture.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/image/image.h"
#include "lockstep/train/callbacks/callback.h"

namespace lockstep::inline v0::train {

/// Draws `text` with its upper left corner at column `x` of row `y` of an RGB image: characters of
/// 5 x 7 pixels, 6 pixels apart, in black. A character that is not printable ASCII becomes a
/// question mark. Text beyond the image is clipped.
void draw_text(std::string_view text, int x, int y, const data::ImageSpan& pixels);

/// Returns an RGB picture of the images in rows of equal length. The frame of an image is green if
/// the predicted class is correct, else red. Below it are the predicted class with its probability
/// in percent and, if it is wrong, "not" and the correct class. Small images are enlarged and large
/// ones reduced by a whole number. Classes are shown by `class_names`, or by number if it is empty.
/// Throws Error (input) if the numbers of images and predictions differ or are 0.
data::Image prediction_sheet(const ImagePredictions& predictions,
                             const std::vector<std::string>& class_names);

}  // namespace lockstep::inline v0::train
