// The optimizer of a CPU replica.
#pragma once

#include <memory>

#include "lockstep/model/updater.h"

namespace lockstep::model::cpu {

std::unique_ptr<Updater> make_updater(const OptimizerOptions& options, const ParameterTable& table,
                                      const UpdateArrays& arrays);

}  // namespace lockstep::model::cpu
