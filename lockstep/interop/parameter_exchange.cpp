#include "lockstep/interop/parameter_exchange.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/allreduce/buckets/layout.h"
#include "lockstep/base/error.h"
#include "lockstep/interop/gradient_reducer.h"

namespace lockstep::inline v0::interop {
namespace {

std::size_t size_of(const NumberSpan& numbers) {
  return std::visit([](const auto& span) { return span.size(); }, numbers);
}

bool is_float64(const NumberSpan& numbers) {
  return std::holds_alternative<std::span<double>>(numbers);
}

std::string described(const NumberSpan& numbers) {
  return fmt::format("{} of {}", size_of(numbers), is_float64(numbers) ? "double" : "float");
}

void fill_with_zeros(const NumberSpan& numbers) {
  std::visit([](const auto& span) { std::ranges::fill(span, 0); }, numbers);
}

void broadcast(job::Workers& workers, const NumberSpan& numbers, int root) {
  std::visit([&](const auto& span) { workers.broadcast(span, root); }, numbers);
}

std::vector<ParameterLayout> layouts_of(std::span<const Parameter> parameters) {
  std::vector<ParameterLayout> layouts;
  for (const Parameter& parameter : parameters) {
    ParameterLayout& layout = layouts.emplace_back(
        ParameterLayout{parameter.name, parameter.shape, is_float64(parameter.values)});
    if (layout.shape.empty()) layout.shape = {static_cast<std::int64_t>(size_of(parameter.values))};
  }
  return layouts;
}

std::string samples_text(double samples) {
  return samples == 1 ? "1 sample" : fmt::format("{} samples", samples);
}

}  // namespace

ParameterExchange::ParameterExchange(job::Workers& workers, std::span<const Parameter> parameters,
                                     const ReducerOptions& options)
    : reducer_(std::make_unique<GradientReducer>(workers, layouts_of(parameters), options)),
      reported_(parameters.size()) {
  check(parameters);
}

ParameterExchange::~ParameterExchange() = default;

bool ParameterExchange::is_complete() const { return reducer_->is_complete(); }
bool ParameterExchange::is_reduced() const { return reducer_->is_reduced(); }
void ParameterExchange::applied() { reducer_->applied(); }
void ParameterExchange::discard() {
  if (!is_reduced())
    reducer_->usage_error("expected synchronize() before discard()", "nothing is reduced");
  applied();
}
void ParameterExchange::require_between_steps(std::string_view call) {
  reducer_->require_between_steps(call);
}
bool ParameterExchange::has_gradient(std::size_t parameter) const {
  return reducer_->has_gradient(parameter);
}
double ParameterExchange::gradient_norm() const { return reducer_->gradient_norm(); }
bool ParameterExchange::is_finite() const { return reducer_->is_finite(); }
bool ParameterExchange::must_skip() const { return reducer_->must_skip(); }
double ParameterExchange::samples() const { return reducer_->samples(); }

// Sizes and types must be those that ranks have compared.
void ParameterExchange::check(std::span<const Parameter> parameters) {
  const std::vector<ParameterLayout>& layouts = reducer_->parameters();
  if (parameters.size() != layouts.size())
    reducer_->usage_error(
        fmt::format("expected {} parameters as in the first call", layouts.size()),
        fmt::format("got {}", parameters.size()));
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const auto is_expected = [&](const NumberSpan& numbers) {
      return size_of(numbers) == layouts[i].elements() &&
             is_float64(numbers) == layouts[i].is_float64;
    };
    if (!is_expected(parameters[i].values) || !is_expected(parameters[i].gradient))
      reducer_->usage_error(
          fmt::format("expected {0} values of {1} and {0} of its gradient, of {2}",
                      layouts[i].elements(), layouts[i].name,
                      layouts[i].is_float64 ? "double" : "float"),
          fmt::format("got {} and {}", described(parameters[i].values),
                      described(parameters[i].gradient)));
  }
}

void ParameterExchange::broadcast_values(std::span<const Parameter> parameters, int root) {
  reducer_->require_between_steps("broadcast_parameters()");
  check(parameters);
  for (const Parameter& parameter : parameters)
    broadcast(reducer_->workers(), parameter.values, root);
}

void ParameterExchange::broadcast_state(std::span<const Parameter> state, int root) {
  reducer_->require_between_steps("broadcast_optimizer_state()");
  reducer_->workers().wait_pending();
  allreduce::check_layout(reducer_->workers().group(), describe(layouts_of(state)));
  for (const Parameter& kept : state) broadcast(reducer_->workers(), kept.values, root);
}

void ParameterExchange::begin_backward(std::span<const Parameter> parameters, double samples) {
  check(parameters);
  if (reducer_->steps() == 0 && reducer_->passes() == 0)
    for (std::size_t i = 0; i < parameters.size(); ++i)
      std::visit([&]<typename T>(std::span<T> values) { reducer_->observe_values<T>(i, values); },
                 parameters[i].values);
  reducer_->begin_pass(samples);
  samples_ = samples;
}

void ParameterExchange::gradient_ready(std::span<const Parameter> parameters,
                                       std::size_t parameter) {
  if (parameter >= parameters.size())
    reducer_->usage_error(fmt::format("expected a parameter number below {}", parameters.size()),
                          fmt::format("got {}", parameter));
  if (!reducer_->is_in_pass())
    reducer_->usage_error(
        "expected begin_backward() before gradient_ready()",
        fmt::format("{} was announced outside of a backward pass", parameters[parameter].name));
  if (reported_[parameter])
    reducer_->usage_error("expected one gradient per parameter in a backward pass",
                          fmt::format("{} was announced twice", parameters[parameter].name));
  submit(parameters, parameter);
}

// Between passes of a step the caller may change its gradients, which have been added up here.
void ParameterExchange::submit(std::span<const Parameter> parameters, std::size_t parameter) {
  reported_[parameter] = true;
  std::visit(
      [&]<typename T>(std::span<T> gradient) {
        const std::span<const T> values = gradient;
        if (reducer_->is_last_pass() && samples_ > 0)
          marks_.push_back({parameter, reducer_->submit_hashed(parameter, values)});
        else
          reducer_->submit(parameter, values);
      },
      parameters[parameter].gradient);
}

// Clears the gradients for code that accumulates; code that overwrites them is not affected.
void ParameterExchange::backward_done(std::span<const Parameter> parameters,
                                      std::optional<double> samples) {
  if (!reducer_->is_in_pass())
    begin_backward(parameters, samples.value_or(1));
  else if (samples && *samples != samples_)
    reducer_->usage_error(
        fmt::format("expected the same number of samples as in begin_backward(), {}", samples_),
        fmt::format("backward_done() got {}", samples_text(*samples)));
  check(parameters);
  const bool is_last = reducer_->is_last_pass();
  for (std::size_t i = parameters.size(); i-- > 0;)
    if (!reported_[i] && parameters[i].has_gradient) submit(parameters, i);
  reducer_->end_pass();
  if (!is_last)
    for (const Parameter& parameter : parameters) fill_with_zeros(parameter.gradient);
  std::fill(reported_.begin(), reported_.end(), false);
}

// If the caller continues after the error, the step uses the gradients as reported, which the
// reducer has copied.
void ParameterExchange::check_unchanged(std::span<const Parameter> parameters) {
  const auto changed = std::ranges::find_if(marks_, [&](const Mark& mark) {
    return std::visit([](const auto& span) { return hash_of(std::as_bytes(span)); },
                      parameters[mark.parameter].gradient) != mark.hash;
  });
  if (changed == marks_.end()) return;
  const std::string& name = parameters[changed->parameter].name;
  marks_.clear();
  restores_ = true;
  reducer_->usage_error(
      "expected gradients to stay unchanged from the backward pass to step(): call synchronize() "
      "before reading or changing them",
      fmt::format("the gradient of {} was changed", name));
}

void ParameterExchange::write_back(std::span<const Parameter> parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (!reducer_->has_gradient(i))
      fill_with_zeros(parameters[i].gradient);
    else if (!reducer_->is_alone() || restores_)
      std::visit([&]<typename T>(
                     std::span<T> to) { std::ranges::copy(reducer_->gradient<T>(i), to.begin()); },
                 parameters[i].gradient);
  restores_ = false;
}

void ParameterExchange::synchronize(std::span<const Parameter> parameters) {
  check(parameters);
  check_unchanged(parameters);
  reducer_->reduce();
  marks_.clear();
  write_back(parameters);
}

bool ParameterExchange::synchronize_partial(std::span<const Parameter> parameters) {
  check(parameters);
  if (!reducer_->reduce_partial()) return false;
  write_back(parameters);
  return true;
}

}  // namespace lockstep::inline v0::interop
