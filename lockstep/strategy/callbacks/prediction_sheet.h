// Images and what a network predicts for them, as one picture.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/image/image.h"
#include "lockstep/strategy/callback.h"

namespace lockstep::strategy {

/// Draws `text` with its upper left corner at column `x` of row `y` of an RGB image: characters of
/// 5 x 7 pixels, 6 pixels apart, in black. A character that is not printable ASCII is a question
/// mark. What does not fit is cut.
void draw_text(std::string_view text, int x, int y, const data::ImageSpan& pixels);

/// An RGB picture of the images, in rows of equal length, each in a frame that is green if the
/// predicted class is right and red if not. Below it are the predicted class with its probability
/// in percent, and, if that is wrong, "not" and the right class. Small images are enlarged and
/// large ones reduced by a whole number. Classes have the names `class_names`, or their numbers if
/// it is empty. Throws Error (input) for other numbers of images and predictions, or none.
data::Image prediction_sheet(const ImagePredictions& predictions,
                             const std::vector<std::string>& class_names);

}  // namespace lockstep::strategy
