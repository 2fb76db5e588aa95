// Updates on a GPU: the decision is taken there, so that the host waits once a step.
#pragma once

#include <memory>

#include "model/cuda/context.h"
#include "model/updater.h"

namespace lockstep::model::cuda {

std::unique_ptr<Updater> make_updater(Context& context, const OptimizerOptions& options, const ParameterTable& table,
                                      const UpdateArrays& arrays);

}  // namespace lockstep::model::cuda
