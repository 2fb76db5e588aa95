// A LibTorch function as the loss of a Trainer.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/model/loss/loss_options.h"

namespace lockstep::inline v0::torch {

/// Options of a FunctionLoss.
struct FunctionLossOptions {
  std::string name = "function_loss";  ///< name in logs and errors
  std::string activation = {};  ///< see CustomLoss::activation: "softmax", "sigmoid" or empty
};

/// A loss that a function computes and autograd differentiates, for CPU replicas:
///
///     namespace F = ::torch::nn::functional;
///     const auto loss = std::make_shared<lockstep::torch::FunctionLoss>(
///         [](const at::Tensor& outputs, const at::Tensor& targets) {
///           return F::smooth_l1_loss(outputs, targets,
///                                    F::SmoothL1LossFuncOptions().reduction(::torch::kNone));
///         });
///     Trainer trainer(strategy, network, {.loss = loss});
///
/// The arguments are the outputs [samples, values] of a part of a batch, and the targets: float32
/// [samples, values], or int64 class numbers [samples]. The result is a loss for each sample,
/// [samples, ...], whose further dimensions are averaged: use reduction none. The Trainer applies
/// weights of samples and classes, micro-batches, and the mean over the global batch. The loss of a
/// sample must not depend on other samples of the part, which vary with the number of replicas.
class FunctionLoss final : public model::CustomLoss {
 public:
  /// Returns the losses of samples; see above.
  using Function = std::function<at::Tensor(const at::Tensor& outputs, const at::Tensor& targets)>;

  /// `function` is called on the threads of all replicas at the same time.
  explicit FunctionLoss(Function function, FunctionLossOptions options = {});

  std::string name() const override { return options_.name; }
  std::string_view activation() const override { return options_.activation; }
  double value(std::span<const float> outputs, const model::SampleTargets& targets) const override;
  void gradient(std::span<const float> outputs, const model::SampleTargets& targets,
                std::span<float> gradient) const override;
  /// Calls the function once. Throws Error (input) for a result that is not a loss for each sample,
  /// and for what LibTorch throws.
  void evaluate(std::span<const float> outputs, const model::Targets& targets,
                std::span<double> losses, std::span<float> gradients) const override;

 private:
  at::Tensor losses_of(const at::Tensor& outputs, const at::Tensor& targets) const;

  Function function_;
  FunctionLossOptions options_;
};

}  // namespace lockstep::inline v0::torch
