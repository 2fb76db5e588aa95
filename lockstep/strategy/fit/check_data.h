// Whether a data set fits a network and its losses.
#pragma once

#include <string>

#include "lockstep/data/dataset.h"
#include "lockstep/model/loss.h"
#include "lockstep/model/network.h"

namespace lockstep::strategy {

/// Purpose of a data set.
enum class DataUse {
  training,    ///< must have exactly the classes of the network
  evaluation,  ///< may lack classes, if they have names or only their labels are known
  prediction,  ///< labels do not matter
};

/// Throws Error (data) unless `dataset` fits `network` and `loss`: names, types and shapes of the
/// inputs, number of classes or targets, a class for each position of an output such as [T, V], at
/// least one record. One input matches one input whatever their names, and so do the loss and a
/// single target. Throws Error (input) if it is not batched, if a tensor that they read has no
/// fixed size, or, for evaluation and prediction, if it does not yield each record once.
void check_data_fits(const data::Dataset& dataset, const model::Network& network,
                     const model::TotalLoss& loss, DataUse use = DataUse::training);

/// Describes everything about a data set that must be the same on all ranks, as lines for
/// job::Agreement::require_same_lines(): "global batch: 64", "data: 60000 records of [28, 28, 1] in
/// 10 classes".
std::string describe_plan(const data::Dataset& dataset);

}  // namespace lockstep::strategy
