#include "lockstep/interop/torch/module/module_operation.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "lockstep/interop/torch/runtime.h"
#include "lockstep/random/random.h"

namespace lockstep::inline v0::torch {

ModuleOperation::ModuleOperation(std::shared_ptr<ReplicatedModule> module,
                                 const model::CompileContext& context, bool draws,
                                 bool reads_indices)
    : module_(std::move(module)),
      where_(fmt::format("layer {} (torch)", context.name)),
      context_(context),
      draws_(draws),
      reads_indices_(reads_indices) {}

void ModuleOperation::forward(const model::Operands& o, const model::PassContext& pass) {
  rethrow_as_error(where_, "expected a module that computes this batch", ErrorCategory::input, [&] {
    const bool training = pass.training && !context_.frozen;
    const c10::AutoGradMode keeps_graph(context_.has_backward());
    {
      const c10::NoGradGuard no_graph;
      module_->bind(o.parameters, o.buffers);
    }
    make_inputs(o);
    std::optional<SeededGenerator> generator;
    if (training && draws_)
      generator.emplace(
          random_key(random_key(pass.seed, context_.name, static_cast<std::uint64_t>(pass.step)),
                     "part", static_cast<std::uint64_t>(pass.first_sample)));
    output_ = module_->forward(inputs_, training);
    // Inputs are views of memory that other layers read.
    if (std::ranges::any_of(inputs_, [](const at::Tensor& input) { return input._version() > 0; }))
      throw Error(ErrorCategory::input, where_,
                  "expected a module that leaves its inputs as they are",
                  "it changed one in place, as ReLU(inplace=True) does: begin with a clone");
    const c10::NoGradGuard no_graph;
    if (output_.numel() != static_cast<std::int64_t>(o.output.size()))
      throw Error(ErrorCategory::input, where_,
                  fmt::format("expected an output of {} values", o.output.size()),
                  fmt::format("got {}", output_.numel()));
    write(output_, o.output.as<float>());
    if (training) module_->store(o.buffers);
    if (!context_.has_backward()) release();
  });
}

void ModuleOperation::backward(const model::Operands& o, const model::PassContext& /*pass*/) {
  rethrow_as_error(where_, "expected a module with a backward pass", ErrorCategory::input, [&] {
    std::vector<at::Tensor> leaves;
    std::vector<std::span<float>> gradients;
    for (std::size_t i = 0; i < o.parameter_gradients.size(); ++i)
      if (!o.parameter_gradients[i].empty()) {
        leaves.push_back(module_->parameters()[i].second);
        gradients.push_back(o.parameter_gradients[i]);
      }
    for (std::size_t k = 0; k < o.input_gradients.size(); ++k)
      if (!o.input_gradients[k].empty()) {
        leaves.push_back(inputs_[k]);
        gradients.push_back(o.input_gradients[k].as<float>());
      }
    ::torch::autograd::variable_list results(leaves.size());
    if (output_.requires_grad())
      results = ::torch::autograd::grad(
          {output_}, leaves,
          {view_of(o.output_gradient.as<float>(), output_.sizes()).to(output_.scalar_type())},
          /*retain_graph=*/false, /*create_graph=*/false, /*allow_unused=*/true);
    const c10::NoGradGuard no_graph;
    for (std::size_t i = 0; i < results.size(); ++i) write(results[i], gradients[i]);
    release();
  });
}

void ModuleOperation::make_inputs(const model::Operands& o) {
  release();
  for (std::size_t k = 0; k < context_.inputs.size(); ++k) {
    std::vector<std::int64_t> sizes = {context_.batch};
    std::ranges::copy(context_.inputs[k], std::back_inserter(sizes));
    if (k == 0 && reads_indices_) {
      // LibTorch reads it only; from_blob takes no pointer to const.
      auto* const indices = const_cast<std::int32_t*>(o.indices.data());  // NOLINT
      inputs_.push_back(
          at::from_blob(indices, sizes, at::TensorOptions().dtype(at::kInt)).to(at::kLong));
      continue;
    }
    inputs_.push_back(view_of(o.inputs[k].as<float>(), sizes));
    if (context_.has_backward() && context_.input_gradients) inputs_.back().requires_grad_();
  }
}

void ModuleOperation::release() {
  inputs_.clear();
  output_ = at::Tensor();
}

}  // namespace lockstep::inline v0::torch
