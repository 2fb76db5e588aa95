#include "lockstep/interop/step_recording.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/interop/gradient_arrays.h"

namespace lockstep::inline v0::interop {
namespace {

/// Gradients of less than this share of the whole gradient count as zeros with rounding errors,
/// such as that of a bias before a normalization.
constexpr double kNegligible = 1e-3;

template <typename T>
void copy(std::vector<std::vector<double>>& arrays, std::size_t parameter,
          std::span<const T> values, double factor) {
  if (arrays.size() <= parameter) arrays.resize(parameter + 1);
  std::vector<double>& array = arrays[parameter];
  array.assign(values.begin(), values.end());
  if (factor != 1)
    for (double& value : array) value *= factor;
}

double norm(std::span<const double> values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

double distance(std::span<const double> a, std::span<const double> b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares);
}

}  // namespace

void ParameterNumbers::set(std::size_t parameter, std::span<const float> values, double factor) {
  copy(arrays, parameter, values, factor);
}

void ParameterNumbers::set(std::size_t parameter, std::span<const double> values, double factor) {
  copy(arrays, parameter, values, factor);
}

std::vector<double> ParameterNumbers::flat() const {
  std::vector<double> all;
  for (const std::vector<double>& array : arrays) all.insert(all.end(), array.begin(), array.end());
  return all;
}

int StepRecording::add_reducer(std::vector<job::ObservedParameter> parameters) {
  reducers_.push_back({.parameters = std::move(parameters)});
  own_.emplace_back();
  reduced_.emplace_back();
  return static_cast<int>(reducers_.size()) - 1;
}

// Without a step that differs, and within the limit of memory.
bool StepRecording::records(int reducer) const {
  return !difference_ && reducers_[static_cast<std::size_t>(reducer)].made < limit_;
}

void StepRecording::on_values(int reducer, std::size_t parameter, std::span<const float> values) {
  at(reducer).values.set(parameter, values);
  at(reducer).hashes.push_back(hash_of(std::as_bytes(values)));
}

void StepRecording::on_values(int reducer, std::size_t parameter, std::span<const double> values) {
  at(reducer).values.set(parameter, values);
  at(reducer).hashes.push_back(hash_of(std::as_bytes(values)));
}

void StepRecording::on_gradient(int reducer, std::size_t parameter, std::span<const float> gradient,
                                double factor) {
  if (records(reducer) && reference_ != nullptr)
    own_[static_cast<std::size_t>(reducer)].set(parameter, gradient, factor);
}

void StepRecording::on_gradient(int reducer, std::size_t parameter,
                                std::span<const double> gradient, double factor) {
  if (records(reducer) && reference_ != nullptr)
    own_[static_cast<std::size_t>(reducer)].set(parameter, gradient, factor);
}

void StepRecording::on_reduced(int reducer, std::size_t parameter,
                               std::span<const float> gradient) {
  if (records(reducer)) reduced_[static_cast<std::size_t>(reducer)].set(parameter, gradient);
}

void StepRecording::on_reduced(int reducer, std::size_t parameter,
                               std::span<const double> gradient) {
  if (records(reducer)) reduced_[static_cast<std::size_t>(reducer)].set(parameter, gradient);
}

void StepRecording::on_step(int reducer, double samples) {
  RecordedReducer& recorded = at(reducer);
  const bool is_recorded = records(reducer);
  ++recorded.made;
  if (!is_recorded) return;
  const auto index = static_cast<std::size_t>(reducer);
  recorded.steps.push_back({.samples = samples});
  if (reference_ == nullptr) {
    recorded.steps.back().reduced = reduced_[index];
    return;
  }
  ranks_->all_reduce(std::span(&samples, 1));
  auto difference = ranks_->rank() == 0 ? compared(reducer, samples) : std::nullopt;
  if (!ranks_->any(difference.has_value())) return;
  difference_ = difference ? *std::move(difference) : StepDifference{};
  difference_->reducer = reducer;
  difference_->step = recorded.made;
  difference_->samples = recorded.steps.back().samples;
  difference_->own = std::move(own_[index]);
  difference_->reduced = std::move(reduced_[index]);
}

// Differs in the first parameter whose difference is above the tolerance, or only in `samples`, the
// number on all ranks.
std::optional<StepDifference> StepRecording::compared(int reducer, double samples) const {
  const auto index = static_cast<std::size_t>(reducer);
  const auto step = static_cast<std::size_t>(reducers_[index].made) - 1;
  if (index >= reference_->reducers_.size()) return std::nullopt;
  const RecordedReducer& alone = reference_->reducers_[index];
  if (step >= alone.steps.size()) return std::nullopt;  // the numbers of steps differ
  const ParameterNumbers& expected = alone.steps[step].reduced;
  const ParameterNumbers& actual = reduced_[index];
  const double whole = norm(expected.flat());
  for (std::size_t i = 0; i < std::min(expected.arrays.size(), actual.arrays.size()); ++i) {
    const double scale = std::max(norm(expected.arrays[i]), kNegligible * whole);
    const double relative = distance(expected.arrays[i], actual.arrays[i]) / scale;
    if (relative <= tolerance_ || (scale == 0 && norm(actual.arrays[i]) == 0)) continue;
    return StepDifference{.parameter = i, .difference = relative};
  }
  // A loop that does not count samples gives 1 for each pass.
  if (alone.steps[step].samples != 1 && alone.steps[step].samples != samples)
    return StepDifference{};
  return std::nullopt;
}

}  // namespace lockstep::inline v0::interop
