// Weights of classes that occur unequally often.
#pragma once

#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::strategy {

class Strategy;

/// A weight for each class, so that all classes count the same: records / (classes * records of the
/// class), 0 for a class without records; class numbers instead of records if these have several.
/// Reads every record once, each rank its part: encoded images without decoding them. Maps of the
/// data set are not applied. Throws Error (input) unless the data set has classes, and any reading
/// error. Collective.
std::vector<float> balanced_class_weights(const Strategy& strategy, const data::Dataset& dataset);

}  // namespace lockstep::strategy
