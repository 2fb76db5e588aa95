#pragma once

#include <string>
#include <string_view>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/data/dataset.h"
#include "lockstep/model/loss.h"
#include "lockstep/model/network.h"

namespace lockstep::strategy {

/// Purpose of a data set.
enum class DataUse {
  training,    ///< must have exactly the classes of the network
  evaluation,  ///< may lack classes
  prediction,  ///< labels do not matter
};

/// Throws Error (data) unless `dataset` fits `network` and `loss`: shape, number of classes or
/// targets, at least one record. Throws Error (input) if it is not batched, or, for evaluation and
/// prediction, if it does not yield each record once.
void check_data_fits(const data::Dataset& dataset, const model::Network& network,
                     const model::Loss& loss, DataUse use = DataUse::training);

/// Throws Error (data) if both data sets have class names and these differ.
void check_same_classes(const data::Dataset& training, const data::Dataset& validation);

/// Describes everything about a data set that must be the same on all ranks: "60000 records of [28,
/// 28, 1] in 10 classes, global batch 64".
std::string describe_plan(const data::Dataset& dataset);

}  // namespace lockstep::strategy
