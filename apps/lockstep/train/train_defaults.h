// What `lockstep train` does where its options name no length and no learning rate.
#pragma once

#include <cstdint>

#include "apps/lockstep/train/train_arguments.h"
#include "lockstep/model/network/network.h"

namespace lockstep::inline v0::apps {

/// Epochs of a training on this many records without validation data (docs/program.md).
std::int64_t default_epochs(std::int64_t records);

/// Sets the number of epochs unless the options have a length: with validation data an upper limit,
/// and early stopping on the loss of the validation. Sets the learning rate unless it is given.
void choose_defaults(TrainArguments& arguments, const model::Network& network,
                     std::int64_t records, bool has_validation);

}  // namespace lockstep::inline v0::apps
