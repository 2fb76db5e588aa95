#include "lockstep/interop/torch/module/function_loss.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/interop/torch/runtime.h"
#include "lockstep/model/loss/targets.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::torch {
namespace {

/// [samples, values], a copy: the function may write to it.
at::Tensor rows_of(std::span<const float> values, std::int64_t samples) {
  at::Tensor rows =
      at::empty({samples, static_cast<std::int64_t>(values.size()) / samples}, at::kFloat);
  std::ranges::copy(values, rows.data_ptr<float>());
  return rows;
}

at::Tensor target_rows(const model::Targets& targets, std::int64_t samples) {
  if (targets.labels.empty()) return rows_of(targets.values, samples);
  at::Tensor labels = at::empty({samples}, at::kLong);
  std::ranges::copy(targets.labels, labels.data_ptr<std::int64_t>());
  return labels;
}

model::Targets one_of(const model::SampleTargets& targets) {
  if (targets.values.empty()) return {.labels = {&targets.label, 1}};
  return {.values = targets.values};
}

}  // namespace

FunctionLoss::FunctionLoss(Function function, FunctionLossOptions options)
    : function_(std::move(function)), options_(std::move(options)) {
  if (!function_)
    throw Error(ErrorCategory::input, options_.name, "expected a function of outputs and targets",
                "got an empty one");
}

double FunctionLoss::value(std::span<const float> outputs,
                           const model::SampleTargets& targets) const {
  double loss = 0;
  evaluate(outputs, one_of(targets), {&loss, 1}, {});
  return loss;
}

void FunctionLoss::gradient(std::span<const float> outputs, const model::SampleTargets& targets,
                            std::span<float> gradient) const {
  double loss = 0;
  evaluate(outputs, one_of(targets), {&loss, 1}, gradient);
}

void FunctionLoss::evaluate(std::span<const float> outputs, const model::Targets& targets,
                            std::span<double> losses, std::span<float> gradients) const {
  rethrow_as_error(
      options_.name, "expected a function that computes this batch", ErrorCategory::input, [&] {
        share_thread_budget();
        const c10::AutoGradMode keeps_graph(!gradients.empty());
        const auto samples = static_cast<std::int64_t>(losses.size());
        const at::Tensor rows = rows_of(outputs, samples);
        if (!gradients.empty()) rows.requires_grad_();
        const at::Tensor results = losses_of(rows, target_rows(targets, samples));
        const at::Tensor values = results.detach().to(at::kDouble).contiguous();
        std::ranges::copy_n(values.data_ptr<double>(), samples, losses.begin());
        if (gradients.empty()) return;
        if (!results.requires_grad())
          throw Error(ErrorCategory::input, options_.name,
                      "expected a loss that depends on the outputs", "autograd has no graph of it");
        // A row affects only the loss of its sample, so the gradient of the sum is that of each
        // loss.
        const auto derived = ::torch::autograd::grad({results.sum()}, {rows});
        const at::Tensor gradient = derived.front().contiguous();
        std::ranges::copy_n(gradient.data_ptr<float>(),
                            static_cast<std::ptrdiff_t>(gradients.size()), gradients.begin());
      });
}

/// [samples]
at::Tensor FunctionLoss::losses_of(const at::Tensor& outputs, const at::Tensor& targets) const {
  const std::int64_t samples = outputs.size(0);
  at::Tensor results = function_(outputs, targets);
  const auto refuse = [&](const std::string& actual) {
    throw Error(ErrorCategory::input, options_.name,
                fmt::format("expected a loss for each of {} samples", samples), actual);
  };
  if (!results.defined()) refuse("got an undefined tensor");
  if (!results.is_floating_point())
    refuse(fmt::format("got values of type {}", c10::toString(results.scalar_type())));
  if (results.numel() == 1 && samples == 1) return results.reshape({1});
  if (results.dim() == 0)
    refuse("got one number for all of them: use reduction none, torch::kNone");
  if (results.size(0) != samples || results.numel() == 0)
    refuse("got a tensor of shape " + model::to_string(results.sizes().vec()));
  return results.reshape({samples, -1}).mean(1);
}

}  // namespace lockstep::inline v0::torch
