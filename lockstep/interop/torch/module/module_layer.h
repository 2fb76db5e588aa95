// A LibTorch module or a TorchScript file as a layer of a network, to train it with Lockstep's data
// pipeline, optimizers, checkpoints and metrics.
#pragma once

#include <concepts>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/interop/torch/module/any_module.h"
#include "lockstep/model/layer/layer.h"

namespace lockstep::inline v0::torch {

/// A layer that runs a module, on the CPU in float32 or float64. Its parameters are those of the
/// module that require gradients; its buffers are the other parameters and the buffers. Each
/// replica has a separate module, whose float32 tensors are views of the replica's flat arrays.
///
///     Network network({28, 28, 1}, "net");
///     network.add(lockstep::torch::ModuleLayer([] { return Net(); }));
///     Trainer trainer(strategy, network);
class ModuleLayer final : public model::Layer {
 public:
  /// `make` returns a new module in each call, as a shared_ptr or a holder, always with the same
  /// parameters. It is called for each replica, and, for the initial values, with LibTorch's
  /// generator seeded by the training's seed. Called from any thread, one call at a time.
  template <std::invocable Make>
  explicit ModuleLayer(Make make, const ModuleOptions& options = {})
      : ModuleLayer(Factory([make = std::move(make)] { return AnyModule::from(make()); }),
                    options) {}
  /// The module of the TorchScript file `script`, as torch.jit.save writes it. The file has the
  /// initial values, for every seed. Throws Error (data) if LibTorch cannot read the file.
  explicit ModuleLayer(const std::filesystem::path& script, const ModuleOptions& options = {});
  /// As above, for the contents of such a file; `name` is for messages.
  ModuleLayer(std::shared_ptr<const std::string> content, const std::string& name,
              const ModuleOptions& options = {});

  std::string kind() const override { return "torch"; }
  model::Shape build(model::BuildContext& context) const override;
  /// Throws Error (device) for a GPU and Error (input) for 16-bit precision.
  std::unique_ptr<model::Operation> compile(const model::CompileContext& context,
                                            model::Backend& backend) const override;
  model::Traits traits() const override;

 private:
  struct State;
  using Factory = std::function<AnyModule()>;

  ModuleLayer(Factory make, const ModuleOptions& options);

  std::shared_ptr<State> state_;
};

}  // namespace lockstep::inline v0::torch
