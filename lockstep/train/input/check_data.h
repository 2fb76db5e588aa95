// Checks that a data set matches a network and its losses.
#pragma once

#include <string>

#include "lockstep/data/dataset.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/model/network/network.h"

namespace lockstep::inline v0::train {

/// Purpose of a data set.
enum class DataUse {
  training,    ///< must have exactly the classes of the network
  evaluation,  ///< may lack classes, if they have names or are inferred from labels
  prediction,  ///< labels do not matter
};

/// Throws Error (data) unless `dataset` fits `network` and `loss`: names, types and shapes of the
/// inputs, number of classes or targets, a class for each position of an output such as [T, V], at
/// least one record. A single input matches a single input of another name, and a single loss a
/// single target. Throws Error (input) if `dataset` is not batched, if a tensor that is read has no
/// fixed size, or, for evaluation and prediction, if it does not yield each record once.
void check_data_fits(const data::Dataset& dataset, const model::Network& network,
                     const model::TotalLoss& loss, DataUse use = DataUse::training);

/// Describes the properties of a data set that must be the same on all ranks, as lines for
/// job::Agreement::require_same_lines(): "global batch: 64", "data: 60000 records of [28, 28, 1] in
/// 10 classes".
std::string describe_plan(const data::Dataset& dataset);

}  // namespace lockstep::inline v0::train
