// A module of any class, and how a layer passes data to it.
#pragma once

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/interop/torch/named_tensors.h"

namespace lockstep::inline v0::torch {

/// How a ModuleLayer passes data to its module.
struct ModuleOptions {
  /// Images (arrays of three dimensions) are [channels, height, width] for the module, and [height,
  /// width, channels] for layers and data. False: the module receives them unchanged.
  bool channels_first = true;
  /// Nonzero: the first input has indices from 0 to index_count - 1, which the module receives as
  /// int64.
  std::int64_t index_count = 0;
  /// The module has float64 parameters and computes in float64: its inputs are float64, and its
  /// outputs may be. The Trainer still stores parameters, gradients and buffers rounded to float32.
  /// False: a module with float64 parameters is an error.
  bool float64 = false;
};

/// Type-erased module, as a layer uses it.
struct AnyModule {
  NamedTensors::Pairs parameters;  ///< parameters of the module and its submodules
  NamedTensors::Pairs buffers;     ///< buffers of the module and its submodules
  /// Returns the output for `inputs`.
  std::function<at::Tensor(const std::vector<at::Tensor>& inputs)> forward;
  std::function<void(bool training)> train;  ///< Module::train()

  /// Wraps a module whose forward() accepts up to three tensors and returns one.
  template <typename M>
  static AnyModule from(std::shared_ptr<M> module);
  /// Wraps the module of a holder that TORCH_MODULE declared.
  template <typename M>
  static AnyModule from(const ::torch::nn::ModuleHolder<M>& holder) {
    return from(holder.ptr());
  }
};

template <typename M>
AnyModule AnyModule::from(std::shared_ptr<M> module) {
  return {.parameters = NamedTensors(module->named_parameters()).pairs(),
          .buffers = NamedTensors(module->named_buffers()).pairs(),
          .forward = [module](const std::vector<at::Tensor>& x) -> at::Tensor {
            if constexpr (requires { module->forward(x[0]); })
              if (x.size() == 1) return module->forward(x[0]);
            if constexpr (requires { module->forward(x[0], x[1]); })
              if (x.size() == 2) return module->forward(x[0], x[1]);
            if constexpr (requires { module->forward(x[0], x[1], x[2]); })
              if (x.size() == 3) return module->forward(x[0], x[1], x[2]);
            throw Error(ErrorCategory::input, module->name(),
                        fmt::format("expected a forward() of {} tensors", x.size()),
                        "the module has none");
          },
          .train = [module](bool training) { module->train(training); }};
}

}  // namespace lockstep::inline v0::torch
