// Confusion matrices as images.
#pragma once

#include "lockstep/data/image/image.h"
#include "lockstep/model/metrics/metric.h"

namespace lockstep::inline v0::train {

/// Whether confusion_image() can draw a metric: a matrix [classes, classes] of 1 to 2000 classes.
bool has_image(const model::MetricValue& value);

/// Returns a matrix as RGB pixels: a square per cell, the classes of the labels as rows from the
/// top. The color is the fraction of the row, from white (0) to dark blue (1); a row without
/// samples is white. A square has at least 8 pixels a side up to 256 classes. For more classes it
/// shrinks, down to 1 pixel, so that the image has at most 2048 pixels a side.
data::Image confusion_image(const model::MetricValue& matrix);

}  // namespace lockstep::inline v0::train
