#pragma once

#include <string>
#include <string_view>

#include "allreduce/communicator.h"
#include "data/dataset.h"

namespace lockstep::strategy {

/// What ranks must have in common to go through a data set together: "60000 records of [28, 28, 1] in 10 classes,
/// global batch 64".
std::string describe_plan(const data::Dataset& dataset);

/// Throws the same Error (input) on all ranks unless `mine`, for people, is the same on all: ranks that were given
/// different data or options would train on what nobody meant, or wait for each other for ever. Collective.
void check_same_plan(const allreduce::Communicator& ranks, std::string_view mine);

}  // namespace lockstep::strategy
