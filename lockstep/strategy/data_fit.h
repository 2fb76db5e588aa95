#pragma once

#include <string>
#include <string_view>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/data/dataset.h"
#include "lockstep/model/loss.h"
#include "lockstep/model/network.h"

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

/// What ranks must have in common to go through a data set together: "60000 records of [28, 28, 1] in 10 classes,
/// global batch 64".
std::string describe_plan(const data::Dataset& dataset);

/// Throws the same Error (input) on all ranks unless `mine`, for people, is the same on all: ranks that were given
/// different data or options would train on what nobody meant, or wait for each other for ever. Collective.
void check_same_plan(const allreduce::Communicator& ranks, std::string_view mine);

}  // namespace lockstep::strategy
