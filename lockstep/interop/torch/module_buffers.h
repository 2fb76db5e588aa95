// The buffers of a module that learn from data, such as running statistics of batch normalization.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/interop/torch/named_tensors.h"
#include "lockstep/job/session.h"

namespace lockstep::torch {

/// What becomes of buffers after each step, in which every rank's saw other samples.
enum class BufferSync {
  broadcast,  ///< those of the first rank that had samples in the step
  average,    ///< the average over ranks, weighted by their samples, computed in double; of whole numbers the largest
  none,       ///< each rank keeps its own
};

/// Makes the buffers of all ranks equal, once a step.
class ModuleBuffers {
 public:
  /// `workers` outlives this object. Ranks have the same buffers.
  ModuleBuffers(job::Workers& workers, const NamedTensors& buffers, BufferSync sync);

  /// Collective. `samples`: what this rank's buffers have learned from since the last call. Throws Error (input) on all
  /// ranks where a buffer was resized or converted.
  void synchronize(double samples);

 private:
  struct Kept {
    std::string name;
    at::Tensor buffer;
    std::vector<std::int64_t> sizes;  // as of the beginning, of which all ranks know
    at::ScalarType type;
  };

  void check();
  void broadcast(double samples);
  void average(double samples);
  void take_largest();

  job::Workers& workers_;
  std::vector<Kept> buffers_;
  BufferSync sync_;
  std::vector<std::byte> bytes_;     // of all of them, to broadcast
  std::vector<double> values_;       // of all that are floating-point, one after the other, and the samples
  std::vector<std::int64_t> whole_;  // of the others
};

}  // namespace lockstep::torch
