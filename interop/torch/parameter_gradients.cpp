#include "interop/torch/parameter_gradients.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "device/error.h"
#include "interop/torch/gradient_device.h"
#include "strategy/wrapper/check_together.h"

namespace lockstep::torch {
namespace {

[[noreturn]] void refuse(const std::string& needed, const std::string& given) {
  throw Error(ErrorCategory::input, "torch", needed, given);
}

void check_parameter(const std::string& name, const at::Tensor& tensor, device::Device device) {
  if (!tensor.defined()) refuse("needed parameters with values", fmt::format("{} is an undefined tensor", name));
  if (!tensor.requires_grad()) return;
  if (!tensor.is_leaf()) refuse("needed leaves of the graph", fmt::format("{} is computed from others", name));
  if (tensor.scalar_type() != at::kFloat)
    refuse("needed parameters of float32", fmt::format("{} is {}", name, c10::toString(tensor.scalar_type())));
  if (place_of(tensor) != device)
    refuse(fmt::format("needed parameters on {} (SessionOptions::workers)", to_string(device)),
           fmt::format("{} is on {}", name, tensor.device().str()));
}

std::vector<strategy::ParameterLayout> layouts_of(const std::vector<std::string>& names,
                                                  const std::vector<at::Tensor>& tensors) {
  std::vector<strategy::ParameterLayout> layouts;
  for (std::size_t i = 0; i < names.size(); ++i)
    layouts.push_back({.name = names[i], .shape = tensors[i].sizes().vec()});
  return layouts;
}

}  // namespace

ParameterGradients::ParameterGradients(strategy::Workers& workers, const NamedTensors& parameters,
                                       const strategy::ReducerOptions& options, std::function<PassPlan()> plan,
                                       std::function<void()> ended)
    : all_(parameters.pairs()), plan_(std::move(plan)), ended_(std::move(ended)) {
  strategy::check_together(workers, [&] {
    std::unordered_set<const void*> seen;
    for (const auto& [name, tensor] : all_) {
      check_parameter(name, tensor, workers.device());
      if (!tensor.requires_grad() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
      names_.push_back(name);
      watched_.push_back(tensor);
    }
    if (watched_.empty()) refuse("needed a parameter that requires gradients", "there is none");
    return std::string();
  });
  device_ = make_gradient_device(workers.device());
  reducer_ = std::make_unique<strategy::GradientReducer>(workers, layouts_of(names_, watched_), options,
                                                         device_.stream.get(), std::move(device_.math));
  is_zero_.resize(watched_.size());
  if (!reducer_->is_alone())
    for (std::size_t i = 0; i < watched_.size(); ++i) views_.push_back(view_of(i));
  hooks_ = std::make_unique<GradientHooks>(watched_, static_cast<BackwardListener&>(*this));
}

// Gradients outlive the memory that they are views of.
ParameterGradients::~ParameterGradients() {
  hooks_.reset();
  const c10::NoGradGuard no_graph;
  for (std::size_t i = 0; i < views_.size(); ++i)
    if (at::Tensor& gradient = watched_[i].mutable_grad(); gradient.is_same(views_[i])) gradient = gradient.clone();
}

// Autograd lays out gradients as their parameters lie, if those fill their memory, and in rows else.
at::Tensor ParameterGradients::view_of(std::size_t parameter) const {
  const at::Tensor& tensor = watched_[parameter];
  float* values = reducer_->gradient(parameter).data();
  const auto options = at::TensorOptions().dtype(at::kFloat).device(tensor.device());
  if (tensor.is_non_overlapping_and_dense()) return at::from_blob(values, tensor.sizes(), tensor.strides(), options);
  return at::from_blob(values, tensor.sizes(), options);
}

ParameterGradients::Mark ParameterGradients::mark_of(std::size_t parameter) const {
  const at::Tensor& gradient = watched_[parameter].grad();
  if (!gradient.defined()) return {};
  return {gradient.unsafeGetTensorImpl(), static_cast<std::uint32_t>(gradient._version())};
}

void ParameterGradients::backward_begins() {
  require_untouched();
  marks_.clear();
  const PassPlan plan = plan_();
  pass_has_samples_ = plan.samples > 0;
  reducer_->begin_pass(plan.samples, plan.is_last);
  if (views_.empty() && pass_has_samples_) weigh_alone(plan.samples);
}

// As GradientReducer does it in its memory: what earlier passes left becomes a share of a mean over this one's samples.
void ParameterGradients::weigh_alone(double samples) {
  if (unit_ > 0) scale_alone(unit_ / samples);
  unit_ = samples;
  weight_ += samples;
}

void ParameterGradients::scale_alone(double factor) {
  if (factor == 1 || reducer_->options().reduction == strategy::Reduction::sum) return;
  const c10::NoGradGuard no_graph;
  for (const at::Tensor& parameter : watched_)
    if (at::Tensor& gradient = parameter.mutable_grad(); gradient.defined()) gradient.mul_(factor);
}

void ParameterGradients::gradient_ready(std::size_t parameter) {
  if (!pass_has_samples_) return;
  if (views_.empty()) {
    reducer_->take(parameter, reducer_->gradient(parameter));  // noted only
    return;
  }
  if (watched_[parameter].grad().is_same(views_[parameter]))
    reducer_->written(parameter);
  else
    move_to_view(parameter);
}

void ParameterGradients::move_to_view(std::size_t parameter) {
  at::Tensor& gradient = watched_[parameter].mutable_grad();
  const at::Tensor& view = views_[parameter];
  at::Tensor values = gradient.is_sparse() ? gradient.to_dense() : gradient;
  if (values.strides() != view.strides())
    values = at::empty_strided(view.sizes(), view.strides(), view.options()).copy_(values.detach());
  reducer_->take(parameter, {values.data_ptr<float>(), static_cast<std::size_t>(values.numel())});
  gradient = view;
}

// A gradient that was there before, such as zeros, stays where this step has none.
void ParameterGradients::backward_ends() {
  if (pass_has_samples_ && !views_.empty() && reducer_->is_last_pass())
    for (std::size_t i = watched_.size(); i-- > 0;)
      if (!reducer_->has_gradient_so_far(i) && watched_[i].grad().defined()) gradient_ready(i);
  reducer_->end_pass();
  for (std::size_t i = 0; i < watched_.size(); ++i) marks_.push_back(mark_of(i));
  if (ended_) ended_();
}

void ParameterGradients::require_untouched() {
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    const Mark mark = mark_of(i);
    if (mark == marks_[i]) continue;
    reducer_->misused(
        "needed gradients to stay as the backward pass left them until step(): synchronize() comes before they are "
        "changed, zero_grad() after step()",
        fmt::format("that of {} was {}", names_[i], mark.tensor == nullptr ? "removed" : "changed"));
  }
}

void ParameterGradients::reduce() {
  require_untouched();
  reducer_->reduce();
  show_results();
}

bool ParameterGradients::reduce_rest() {
  require_untouched();
  if (!reducer_->reduce_rest()) return false;
  show_results();
  return true;
}

void ParameterGradients::show_results() {
  marks_.clear();
  if (views_.empty() && weight_ > 0) scale_alone(reducer_->passes() * unit_ / weight_);
  unit_ = weight_ = 0;
  for (std::size_t i = 0; i < views_.size(); ++i)
    watched_[i].mutable_grad() = reducer_->has_gradient(i) || is_zero_[i] ? views_[i] : at::Tensor();
  is_zero_.assign(is_zero_.size(), false);
}

void ParameterGradients::clear(bool set_to_none) {
  reducer_->require_between_steps("zero_grad()");
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    at::Tensor& gradient = watched_[i].mutable_grad();
    if (!gradient.defined()) continue;
    if (!set_to_none && views_.empty()) {
      gradient.detach_();
      gradient.zero_();
      continue;
    }
    is_zero_[i] = !set_to_none;
    gradient.reset();
  }
}

}  // namespace lockstep::torch
