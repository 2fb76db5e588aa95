#pragma once

#include "data/dataset.h"
#include "model/loss.h"
#include "model/network.h"

namespace lockstep::strategy {

/// Throws Error (data) unless `network` and `loss` can take what `dataset` gives: shape, number of classes or targets,
/// records at all; and Error (input) where it is not batched.
void check_data_fits(const data::Dataset& dataset, const model::Network& network, const model::Loss& loss);

}  // namespace lockstep::strategy
