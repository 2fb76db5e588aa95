#pragma once

#include "data/dataset.h"
#include "model/loss.h"
#include "model/network.h"

namespace lockstep::strategy {

/// What a data set is for.
enum class DataUse {
  training,    ///< every class that the network knows occurs
  evaluation,  ///< may lack classes
  prediction,  ///< labels do not matter
};

/// Throws Error (data) unless `network` and `loss` can take what `dataset` gives: shape, number of classes or targets,
/// records at all; and Error (input) where it is not batched, or is to be evaluated and would not give each record
/// once.
void check_data_fits(const data::Dataset& dataset, const model::Network& network, const model::Loss& loss,
                     DataUse use = DataUse::training);

/// Throws Error (data) where both data sets know the names of their classes and these differ.
void check_same_classes(const data::Dataset& training, const data::Dataset& validation);

}  // namespace lockstep::strategy
