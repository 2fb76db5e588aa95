// The tensors of a module as the flat arrays of a replica.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <vector>

#include "lockstep/interop/torch/any_module.h"
#include "lockstep/interop/torch/named_tensors.h"

namespace lockstep::torch {

/// A float32 tensor of these values.
at::Tensor view_of(std::span<float> values, at::IntArrayRef sizes);
/// Copies a tensor of as many elements, rounded to float32; zeros for an undefined one.
void write(const at::Tensor& from, std::span<float> to);

/// A module's tensors, each once, as a layer stores them.
struct ModuleTensors {
  explicit ModuleTensors(const AnyModule& module);  ///< shares the tensors of `module`

  NamedTensors::Pairs parameters;  ///< trained, unless the network freezes them
  NamedTensors::Pairs buffers;     ///< the others
};

/// The module of one replica, with the replica's arrays. Its float32 tensors are views of them, the
/// others are copied.
class ReplicatedModule {
 public:
  using Flat = std::vector<std::span<float>>;  ///< an array for each parameter, or buffer

  ReplicatedModule(AnyModule module, const ModuleOptions& options);

  /// Those that are trained.
  const NamedTensors::Pairs& parameters() const { return tensors_.parameters; }
  /// Gives the module these values. The arrays are the same ones in all calls.
  void bind(const Flat& parameters, const Flat& buffers);
  /// Stores the buffers that are copies.
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

}  // namespace lockstep::torch
