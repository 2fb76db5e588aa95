// Forward and backward passes of a ModuleLayer.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/interop/torch/module/replicated_module.h"
#include "lockstep/model/layer/layer.h"

namespace lockstep::inline v0::torch {

/// Runs a module and computes its gradients by autograd.
class ModuleOperation final : public model::Operation {
 public:
  /// `draws`: whether forward draws random numbers in training. `reads_indices`: whether the first
  /// input has indices.
  ModuleOperation(std::shared_ptr<ReplicatedModule> module, const model::CompileContext& context,
                  bool draws, bool reads_indices);

  // Layers after this one may reuse the output's memory: LibTorch keeps what it needs.
  model::Needs needs() const override {
    return {.output_in_backward = false, .skips_frozen = true};
  }
  void forward(const model::Operands& o, const model::PassContext& pass) override;
  void backward(const model::Operands& o, const model::PassContext& pass) override;

 private:
  void make_inputs(const model::Operands& o);
  void release();

  std::shared_ptr<ReplicatedModule> module_;
  std::string where_;
  model::CompileContext context_;
  bool draws_;
  bool reads_indices_;
  std::vector<at::Tensor> inputs_;  // from forward to backward
  at::Tensor output_;               // from forward to backward
};

}  // namespace lockstep::inline v0::torch
