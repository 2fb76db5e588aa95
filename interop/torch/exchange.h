// Tensors that all ranks are to have alike.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "interop/torch/named_tensors.h"
#include "strategy/workers.h"

namespace lockstep::torch {

/// Every rank's tensors become those of rank `root`, of any type, layout and device. Collective. Throws Error
/// (communication) that names the first tensor whose name, shape or type differs between ranks.
void broadcast_tensors(strategy::Workers& workers, const NamedTensors& tensors, int root = 0);

/// What rank `root` serializes is what all other ranks deserialize. Collective.
void broadcast_archive(strategy::Workers& workers, int root, const std::function<std::string()>& serialize,
                       const std::function<void(const std::string&)>& deserialize);

}  // namespace lockstep::torch
