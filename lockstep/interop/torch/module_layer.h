// A LibTorch module, or a TorchScript file, as a layer of a network: whatever LibTorch can express
// trains with our data, order, optimizers, checkpoints and metrics.
#pragma once

#include <concepts>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/interop/torch/any_module.h"
#include "lockstep/model/layers/layer.h"

namespace lockstep::torch {

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
  /// The same for the contents of such a file; `name` is for messages.
  ModuleLayer(std::shared_ptr<const std::string> content, const std::string& name,
              const ModuleOptions& options = {});

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

}  // namespace lockstep::torch
