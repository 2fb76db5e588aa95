// Makes tensors equal on all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <string_view>

#include "lockstep/interop/torch/named_tensors.h"
#include "lockstep/job/workers.h"

namespace lockstep::inline v0::torch {

/// Copies the tensors of rank `root`, of any type, layout and device, to all ranks. For tensors
/// that no wrapper broadcasts, such as a module's buffers with DistributedOptimizer. Collective.
/// Throws Error (communication) that names the first tensor whose name, shape or type differs
/// between ranks.
void broadcast_tensors(job::Workers& workers, const NamedTensors& tensors, int root = 0);
/// As above, for all ranks of `session`.
inline void broadcast_tensors(job::Session& session, const NamedTensors& tensors, int root = 0) {
  broadcast_tensors(session.workers(), tensors, root);
}

/// Serializes on rank `root` and deserializes the result on all other ranks. Collective. A LibTorch
/// error in either function becomes an Error (input) on all ranks that names `where`.
void broadcast_archive(job::Workers& workers, std::string_view where, int root,
                       const std::function<std::string()>& serialize,
                       const std::function<void(const std::string&)>& deserialize);

}  // namespace lockstep::inline v0::torch
