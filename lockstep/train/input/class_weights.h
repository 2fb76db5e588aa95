// Weights of classes that occur unequally often.
#pragma once

#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::inline v0::strategy {
class Strategy;
}  // namespace lockstep::inline v0::strategy

namespace lockstep::inline v0::train {

/// Returns a weight per class that balances their total weights: records / (classes * records of
/// the class); 0 for a class without records. Labels are counted instead if records have several.
/// Reads every record once, each rank its part; images are not decoded. Maps of the data set are
/// not applied. Throws Error (input) unless the data set has classes, and any reading error.
/// Collective.
std::vector<float> balanced_class_weights(const strategy::Strategy& strategy,
                                          const data::Dataset& dataset);

}  // namespace lockstep::inline v0::train
