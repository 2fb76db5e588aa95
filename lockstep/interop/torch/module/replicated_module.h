// A module whose tensors are stored in the flat arrays of a replica.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <vector>

#include "lockstep/interop/torch/module/any_module.h"
#include "lockstep/interop/torch/named_tensors.h"

namespace lockstep::inline v0::torch {

/// A float32 tensor that views `values`.
at::Tensor view_of(std::span<float> values, at::IntArrayRef sizes);
/// Copies a tensor of the same size, rounded to float32. Writes zeros for an undefined tensor.
void write(const at::Tensor& from, std::span<float> to);

/// A module's tensors without duplicates, as a layer stores them.
struct ModuleTensors {
  explicit ModuleTensors(const AnyModule& module);  ///< shares the tensors of `module`

  NamedTensors::Pairs parameters;  ///< trained, unless the network freezes them
  NamedTensors::Pairs buffers;     ///< the others
};

/// The module of one replica. Its float32 tensors are views of the replica's arrays; other types
/// are copied.
class ReplicatedModule {
 public:
  using Flat = std::vector<std::span<float>>;  ///< an array for each parameter, or buffer

  ReplicatedModule(AnyModule module, const ModuleOptions& options);

  /// The trained parameters.
  const NamedTensors::Pairs& parameters() const { return tensors_.parameters; }
  /// Loads the values into the module. All calls must pass the same arrays.
  void bind(const Flat& parameters, const Flat& buffers);
  /// Copies buffers of other types than float32 back.
  void store(const Flat& buffers);
  /// The output for `inputs`, whose first dimension is the sample, in the layout of the network.
  at::Tensor forward(std::vector<at::Tensor> inputs, bool training);

 private:
  AnyModule module_;
  ModuleTensors tensors_;
  ModuleOptions options_;
  bool is_bound_ = false;
  std::optional<bool> trains_;
};

}  // namespace lockstep::inline v0::torch
