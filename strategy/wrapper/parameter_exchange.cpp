#include "strategy/wrapper/parameter_exchange.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "device/error.h"

namespace lockstep::strategy {
namespace {

// A loop that changes gradients at the wrong moment does so in each step: looking now and then finds it, and costs
// nothing.
constexpr std::int64_t kFirstStepsWatched = 3;
constexpr std::int64_t kStepsBetweenWatched = 100;

std::vector<ParameterLayout> layouts_of(std::span<const Parameter> parameters) {
  std::vector<ParameterLayout> layouts;
  for (const Parameter& parameter : parameters) {
    ParameterLayout& layout = layouts.emplace_back(ParameterLayout{parameter.name, parameter.shape});
    if (layout.shape.empty()) layout.shape = {static_cast<std::int64_t>(parameter.values.size())};
  }
  return layouts;
}

std::uint64_t hash_of(std::span<const float> values) { return XXH3_64bits(values.data(), values.size_bytes()); }

}  // namespace

ParameterExchange::ParameterExchange(Workers& workers, std::span<const Parameter> parameters,
                                     const ReducerOptions& options)
    : reducer_(workers, layouts_of(parameters), options), taken_(parameters.size()) {}

void ParameterExchange::broadcast_values(std::span<const Parameter> parameters, int root) {
  reducer_.require_between_steps("broadcast_parameters()");
  for (const Parameter& parameter : parameters) reducer_.workers().broadcast(parameter.values, root);
}

void ParameterExchange::take(const Parameter& parameter, std::size_t index) {
  taken_[index] = true;
  if (parameter.has_gradient) reducer_.take(index, parameter.gradient);
}

void ParameterExchange::gradient_ready(std::span<const Parameter> parameters, std::size_t parameter) {
  if (parameter >= parameters.size())
    reducer_.misused(fmt::format("needed the number of a parameter below {}", parameters.size()),
                     fmt::format("got {}", parameter));
  if (!reducer_.is_in_pass())
    reducer_.misused("needed begin_backward() before gradient_ready()",
                     fmt::format("{} was announced outside of a backward pass", parameters[parameter].name));
  if (taken_[parameter])
    reducer_.misused("needed one gradient a parameter in a backward pass",
                     fmt::format("{} was announced twice", parameters[parameter].name));
  take(parameters[parameter], parameter);
}

// Code that accumulates adds the next pass to what lies there; code that overwrites does not see the zeros.
void ParameterExchange::backward_done(std::span<const Parameter> parameters, double samples) {
  if (!reducer_.is_in_pass()) reducer_.begin_pass(samples);
  const bool is_last = reducer_.is_last_pass();
  for (std::size_t i = parameters.size(); i-- > 0;)
    if (!taken_[i]) take(parameters[i], i);
  reducer_.end_pass();
  std::fill(taken_.begin(), taken_.end(), false);
  hashes_.clear();
  for (const Parameter& parameter : parameters) {
    if (!is_last) std::ranges::fill(parameter.gradient, 0.0F);
    if (is_last && watches_changes()) hashes_.push_back(hash_of(parameter.gradient));
  }
}

bool ParameterExchange::watches_changes() const {
  return reducer_.steps() < kFirstStepsWatched || reducer_.steps() % kStepsBetweenWatched == 0;
}

void ParameterExchange::check_unchanged(std::span<const Parameter> parameters) {
  for (std::size_t i = 0; i < hashes_.size(); ++i)
    if (hash_of(parameters[i].gradient) != hashes_[i])
      reducer_.misused(
          "needed gradients to stay as the backward pass left them until step(): call synchronize() before "
          "they are read or changed",
          fmt::format("that of {} was changed", parameters[i].name));
  hashes_.clear();
}

void ParameterExchange::put_back(std::span<const Parameter> parameters) {
  if (reducer_.is_alone()) return;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    std::ranges::copy(reducer_.gradient(i), parameters[i].gradient.begin());
}

void ParameterExchange::synchronize(std::span<const Parameter> parameters) {
  check_unchanged(parameters);
  reducer_.reduce();
  put_back(parameters);
}

bool ParameterExchange::synchronize_rest(std::span<const Parameter> parameters) {
  check_unchanged(parameters);
  if (!reducer_.reduce_rest()) return false;
  put_back(parameters);
  return true;
}

}  // namespace lockstep::strategy
