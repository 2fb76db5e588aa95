// Synchronizes module buffers that depend on data, such as the running statistics of batch
// normalization.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/interop/torch/named_tensors.h"
#include "lockstep/job/workers.h"

namespace lockstep::inline v0::torch {

/// How buffers are synchronized after each step, in which ranks have processed different samples.
enum class BufferSync {
  broadcast,  ///< use the buffers of the first rank that had samples in the step
  average,    ///< average over ranks in double, weighted by samples; maximum for integers
  none,       ///< no synchronization
};

/// Makes the buffers of all ranks equal, once per step.
class ModuleBuffers {
 public:
  /// `workers` must outlive this object. All ranks have the same names, shapes and types of
  /// buffers.
  ModuleBuffers(job::Workers& workers, const NamedTensors& buffers, BufferSync sync);

  /// Collective. `samples`: number of samples that this rank has processed since the last call.
  /// Throws Error (input) on all ranks if a buffer was resized or converted.
  void synchronize(double samples);

 private:
  struct Entry {
    std::string name;
    at::Tensor buffer;
    std::vector<std::int64_t> sizes;  // at construction, the same on all ranks
    at::ScalarType type;
  };

  void check();
  void broadcast(double samples);
  void average(double samples);
  void maximize_integers();

  job::Workers& workers_;
  std::vector<Entry> buffers_;
  BufferSync sync_;
  std::vector<std::byte> bytes_;        // all buffers, to broadcast
  std::vector<double> values_;          // all floating-point buffers, then the number of samples
  std::vector<std::int64_t> integers_;  // all integer buffers
};

}  // namespace lockstep::inline v0::torch
