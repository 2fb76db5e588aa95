// The buffers of a module that learn from data, such as running statistics of batch normalization.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "interop/torch/named_tensors.h"
#include "strategy/workers.h"

namespace lockstep::torch {

/// What becomes of buffers after each step, in which every rank's saw other samples.
enum class BufferSync {
  broadcast,  ///< those of rank 0
  average,    ///< the average over ranks, weighted by their samples; of whole numbers the largest
  none,       ///< each rank keeps its own
};

/// Makes the buffers of all ranks equal, once a step.
class ModuleBuffers {
 public:
  /// `workers` outlives this object.
  ModuleBuffers(strategy::Workers& workers, const NamedTensors& buffers, BufferSync sync);

  /// Collective. `samples`: what this rank's buffers have learned from since the last call.
  void synchronize(double samples);

 private:
  void average(double samples);
  void take_largest();

  strategy::Workers& workers_;
  NamedTensors::Pairs buffers_;
  BufferSync sync_;
  std::vector<float> values_;        // of all that are floating-point, one after the other, and the samples
  std::vector<std::int64_t> whole_;  // of the others
};

}  // namespace lockstep::torch
