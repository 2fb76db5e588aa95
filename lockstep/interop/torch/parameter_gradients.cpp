#include "lockstep/interop/torch/parameter_gradients.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <unordered_set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/interop/check_together.h"
#include "lockstep/interop/torch/gradient_device.h"

namespace lockstep::inline v0::torch {
namespace {

void check_parameter(const std::string& where, const std::string& name, const at::Tensor& tensor,
                     device::Device device) {
  const auto refuse = [&](const std::string& expected, const std::string& actual) {
    throw Error(ErrorCategory::input, where, expected, actual);
  };
  if (!tensor.defined())
    refuse("expected parameters with values", fmt::format("{} is an undefined tensor", name));
  if (!tensor.requires_grad()) return;
  if (!tensor.is_leaf())
    refuse("expected leaf tensors", fmt::format("{} is computed from other tensors", name));
  if (tensor.scalar_type() != at::kFloat && tensor.scalar_type() != at::kDouble)
    refuse("expected float32 or float64 parameters",
           fmt::format("{} is {}", name, c10::toString(tensor.scalar_type())));
  if (tensor_device(tensor) != device)
    refuse(fmt::format("expected parameters on {} (SessionOptions::workers)", to_string(device)),
           fmt::format("{} is on {}", name, tensor.device().str()));
}

std::vector<interop::ParameterLayout> layouts_of(const std::vector<std::string>& names,
                                                 const std::vector<at::Tensor>& tensors) {
  std::vector<interop::ParameterLayout> layouts;
  for (std::size_t i = 0; i < names.size(); ++i)
    layouts.push_back({.name = names[i],
                       .shape = tensors[i].sizes().vec(),
                       .is_float64 = tensors[i].scalar_type() == at::kDouble});
  return layouts;
}

}  // namespace

ParameterGradients::ParameterGradients(job::Workers& workers, const NamedTensors& parameters,
                                       const interop::ReducerOptions& options, GradientOwner owner)
    : all_(parameters.pairs()), owner_(std::move(owner)) {
  interop::check_together(workers, owner_.where, [&] {
    std::unordered_set<const void*> seen;
    for (const auto& [name, tensor] : all_) {
      check_parameter(owner_.where, name, tensor, workers.device());
      if (!tensor.requires_grad()) {
        frozen_.emplace_back(name, tensor);
      } else if (seen.insert(tensor.unsafeGetTensorImpl()).second) {
        names_.push_back(name);
        watched_.push_back(tensor);
      }
    }
    if (watched_.empty())
      throw Error(ErrorCategory::input, owner_.where,
                  "expected a parameter that requires gradients", "there is none");
    return std::string();
  });
  device_ = make_gradient_device(workers.device());
  reducer_ = std::make_unique<interop::GradientReducer>(workers, layouts_of(names_, watched_),
                                                        options, device_.stream.get(),
                                                        std::move(device_.math), owner_.where);
  if (!reducer_->is_alone())
    for (std::size_t i = 0; i < watched_.size(); ++i) views_.push_back(view_of(i));
  hooks_ = std::make_unique<GradientHooks>(watched_, static_cast<BackwardListener&>(*this));
}

// Autograd gives a gradient the strides of its parameter if that is dense and non-overlapping, else
// row-major strides.
at::Tensor ParameterGradients::view_of(std::size_t parameter) const {
  const at::Tensor& tensor = watched_[parameter];
  const bool is_wide = tensor.scalar_type() == at::kDouble;
  void* values = is_wide ? static_cast<void*>(reducer_->gradient<double>(parameter).data())
                         : reducer_->gradient(parameter).data();
  const auto keep = [memory = reducer_->memory()](void*) {};
  const auto options = at::TensorOptions().dtype(tensor.scalar_type()).device(tensor.device());
  if (tensor.is_non_overlapping_and_dense())
    return at::from_blob(values, tensor.sizes(), tensor.strides(), keep, options);
  return at::from_blob(values, tensor.sizes(), keep, options);
}

ParameterGradients::Mark ParameterGradients::mark_of(std::size_t parameter) const {
  const at::Tensor& gradient = watched_[parameter].grad();
  if (!gradient.defined()) return {};
  return {gradient.unsafeGetTensorImpl(), static_cast<std::uint32_t>(gradient._version())};
}

void ParameterGradients::usage_error(const std::string& expected, const std::string& actual) {
  reducer_->usage_error(expected, actual);
}

void ParameterGradients::check() {
  if (reducer_->is_in_pass())
    usage_error("expected backward passes to complete", "the last one ended with an exception");
  require_same_parameters();
}

void ParameterGradients::require_same_parameters() {
  if (const auto lost = hooks_->first_lost())
    usage_error(
        "expected parameters to keep the type and device with which they were wrapped: wrap a "
        "module after its to()",
        fmt::format("{} was converted or moved later", names_[*lost]));
  for (const auto& [name, tensor] : frozen_)
    if (tensor.requires_grad())
      usage_error("expected parameters that require gradients to do so when they are wrapped",
                  fmt::format("{} started to require them later", name));
}

bool ParameterGradients::backward_begins() {
  require_same_parameters();
  require_untouched();
  marks_.clear();
  observe_values();
  const PassPlan plan = owner_.plan();
  pass_has_samples_ = plan.samples > 0;
  reducer_->begin_pass(plan.samples, plan.is_last);
  if (views_.empty() && pass_has_samples_) rescale_single(plan.samples);
  return pass_has_samples_;
}

// Values and gradients have the same order in memory.
void ParameterGradients::observe_values() const {
  if (!reducer_->is_observed() || reducer_->steps() > 0 || reducer_->passes() > 0) return;
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    const at::Tensor values =
        watched_[i].is_non_overlapping_and_dense() ? watched_[i] : watched_[i].contiguous();
    const auto count = static_cast<std::size_t>(values.numel());
    if (values.scalar_type() == at::kDouble)
      reducer_->observe_values<double>(i, {values.data_ptr<double>(), count});
    else
      reducer_->observe_values<float>(i, {values.data_ptr<float>(), count});
  }
}

// Like GradientReducer::rescale_to(): rescales the gradients of earlier passes to the number of
// samples of this pass.
void ParameterGradients::rescale_single(double samples) {
  if (unit_ > 0) scale_single(unit_ / samples);
  unit_ = samples;
  weight_ += samples;
}

void ParameterGradients::scale_single(double factor) {
  if (factor == 1 || reducer_->options().reduction == interop::Reduction::sum) return;
  const c10::NoGradGuard no_graph;
  for (const at::Tensor& parameter : watched_)
    if (at::Tensor& gradient = parameter.mutable_grad(); gradient.defined()) gradient.mul_(factor);
}

void ParameterGradients::gradient_ready(std::size_t parameter) {
  if (!pass_has_samples_ || !watched_[parameter].grad().defined()) return;
  if (views_.empty()) {
    mark_single(parameter);
    return;
  }
  if (watched_[parameter].grad().is_same(views_[parameter]))
    reducer_->submit_in_place(parameter);
  else
    move_to_view(parameter);
}

// Submits the reducer's own array, which only marks the gradient as present.
void ParameterGradients::mark_single(std::size_t parameter) {
  if (watched_[parameter].scalar_type() == at::kDouble)
    reducer_->submit(parameter, reducer_->gradient<double>(parameter));
  else
    reducer_->submit(parameter, reducer_->gradient(parameter));
}

void ParameterGradients::submit(std::size_t parameter, const at::Tensor& values) {
  const auto count = static_cast<std::size_t>(values.numel());
  if (values.scalar_type() == at::kDouble)
    reducer_->submit(parameter, std::span<const double>(values.data_ptr<double>(), count));
  else
    reducer_->submit(parameter, std::span<const float>(values.data_ptr<float>(), count));
}

void ParameterGradients::move_to_view(std::size_t parameter) {
  at::Tensor& gradient = watched_[parameter].mutable_grad();
  const at::Tensor& view = views_[parameter];
  at::Tensor values = gradient.is_sparse() ? gradient.to_dense() : gradient;
  if (reducer_->has_gradient_so_far(parameter)) {
    // With create_graph, autograd has summed it with earlier passes in a separate tensor.
    view.copy_(values.detach());
    reducer_->submit_in_place(parameter);
  } else {
    if (values.strides() != view.strides())
      values =
          at::empty_strided(view.sizes(), view.strides(), view.options()).copy_(values.detach());
    submit(parameter, values);
  }
  gradient = view;
}

void ParameterGradients::backward_ends() {
  if (pass_has_samples_ && !views_.empty()) drain_ready();
  reducer_->end_pass();
  for (std::size_t i = 0; i < watched_.size(); ++i) marks_.push_back(mark_of(i));
  if (owner_.ended) owner_.ended();
}

// An existing gradient, such as zeros, stays if this step has none.
void ParameterGradients::drain_ready() {
  for (std::size_t i = watched_.size(); i-- > 0;)
    if (!reducer_->has_gradient_so_far(i)) gradient_ready(i);
}

void ParameterGradients::require_untouched() {
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    const Mark mark = mark_of(i);
    if (mark == marks_[i]) continue;
    usage_error("expected gradients to stay unchanged " + owner_.unchanged,
                fmt::format("the gradient of {} was {}", names_[i],
                            mark.tensor == nullptr ? "removed" : "changed"));
  }
}

void ParameterGradients::reduce() {
  check();
  require_untouched();
  reducer_->reduce();
  store_results();
}

bool ParameterGradients::reduce_partial() {
  check();
  require_untouched();
  if (!reducer_->reduce_partial()) return false;
  store_results();
  return true;
}

void ParameterGradients::store_results() {
  marks_.clear();
  if (views_.empty() && weight_ > 0) scale_single(reducer_->passes() * unit_ / weight_);
  unit_ = weight_ = 0;
  if (reducer_->samples() == 0) return;  // no samples, so no average
  for (std::size_t i = 0; i < views_.size(); ++i)
    watched_[i].mutable_grad() = reducer_->has_gradient(i) ? views_[i] : at::Tensor();
}

void ParameterGradients::clear(bool set_to_none) {
  check();
  reducer_->require_between_steps("zero_grad()");
  const c10::NoGradGuard no_graph;
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    at::Tensor& gradient = watched_[i].mutable_grad();
    if (!gradient.defined()) continue;
    if (set_to_none) {
      gradient.reset();
    } else {
      if (!views_.empty()) gradient = views_[i];
      gradient.detach_();
      gradient.zero_();
    }
  }
}

}  // namespace lockstep::inline v0::torch
