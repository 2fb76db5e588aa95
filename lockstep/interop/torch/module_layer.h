// A LibTorch module, or a TorchScript file, as a layer of a network: whatever LibTorch can express
// trains with our data, order, optimizers, checkpoints and metrics.
#pragma once

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/interop/torch/named_tensors.h"
#include "lockstep/model/layers/layer.h"

namespace lockstep::torch {

/// How a ModuleLayer passes data to its module.
struct ModuleOptions {
  /// Images, arrays of three dimensions, are [channels, height, width] for the module, and [height,
  /// width, channels] for layers and data. False: the module gets them as they are.
  bool channels_first = true;
  /// Nonzero: the first input has indices from 0 to index_count - 1, which the module gets as
  /// int64.
  std::int64_t index_count = 0;
  /// The module has float64 parameters and computes in float64: it gets inputs of float64, and may
  /// return them. The Trainer still keeps values and gradients of its parameters and buffers
  /// rounded to float32. False: a module with float64 parameters is an error.
  bool float64 = false;
};

/// What a layer needs of a module of any class.
struct AnyModule {
  NamedTensors::Pairs parameters;  ///< of the module and its submodules
  NamedTensors::Pairs buffers;     ///< the same
  /// The output for these inputs.
  std::function<at::Tensor(const std::vector<at::Tensor>& inputs)> forward;
  std::function<void(bool training)> train;  ///< Module::train()

  /// Of a module whose forward() takes up to three tensors and returns one.
  template <typename M>
  static AnyModule of(std::shared_ptr<M> module);
  /// The same, of a holder that TORCH_MODULE has declared.
  template <typename M>
  static AnyModule of(const ::torch::nn::ModuleHolder<M>& holder) {
    return of(holder.ptr());
  }
};

/// A layer that computes what a module computes, on the CPU in float32 or float64. Its parameters
/// are those of the module that require gradients, its buffers the other parameters and the
/// buffers. Each replica has a module of its own, whose float32 tensors are views of the replica's
/// flat arrays.
///
///     Network network({28, 28, 1}, "net");
///     network.add(lockstep::torch::ModuleLayer([] { return Net(); }));
///     Trainer trainer(strategy, network);
class ModuleLayer final : public model::Layer {
 public:
  /// `make` returns a new module in each call: a shared_ptr, or a holder. It is called for each
  /// replica, and with LibTorch's generator seeded by the training's seed for the initial values.
  /// It must return modules of the same parameters, from any thread, one call at a time.
  template <std::invocable Make>
  explicit ModuleLayer(Make make, const ModuleOptions& options = {})
      : ModuleLayer(Factory([make = std::move(make)] { return AnyModule::of(make()); }), options) {}
  /// A module of the TorchScript file `script`, as torch.jit.save writes it. Its values are the
  /// initial ones, for every seed. Throws Error (data) if LibTorch cannot read the file.
  explicit ModuleLayer(const std::filesystem::path& script, const ModuleOptions& options = {});

  std::string kind() const override { return "torch"; }
  model::Shape build(model::BuildContext& context) const override;
  /// Throws Error (input) for a GPU and for 16 bits.
  std::unique_ptr<model::Operation> compile(const model::CompileContext& context,
                                            model::Backend& backend) const override;
  model::Traits traits() const override;

 private:
  struct State;
  using Factory = std::function<AnyModule()>;

  ModuleLayer(Factory make, const ModuleOptions& options);

  std::shared_ptr<State> state_;
};

template <typename M>
AnyModule AnyModule::of(std::shared_ptr<M> module) {
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

}  // namespace lockstep::torch
