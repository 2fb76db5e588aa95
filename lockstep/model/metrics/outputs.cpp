#include "lockstep/model/metrics/outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::model {
namespace {

bool is_nan(float value) { return std::isnan(value); }

}  // namespace

OutputKind output_kind(const Loss& loss) {
  const std::string_view activation = activation_of(loss);
  return activation == "softmax"   ? OutputKind::classes
         : activation == "sigmoid" ? OutputKind::binary
                                   : OutputKind::values;
}

std::int64_t ClassReader::count(std::span<const float> outputs, const Targets& targets,
                                std::int64_t samples) const {
  const std::int64_t rows = samples * positions_of(targets, samples);
  if (std::ssize(outputs) != rows * width)
    throw Error(
        ErrorCategory::input, "metrics",
        fmt::format("expected metrics of {} outputs, those of each of {} (row_width())",
                    std::ssize(outputs) / std::max<std::int64_t>(rows, 1), counted(rows, "label")),
        fmt::format("got metrics of {}", width));
  return kind == OutputKind::binary ? samples * width : rows;
}

std::int64_t ClassReader::label(const Targets& targets, std::int64_t i) const {
  const auto at = static_cast<std::size_t>(i);
  std::int64_t label = 0;
  if (!targets.labels.empty()) {
    LOCKSTEP_CHECK(at < targets.labels.size());
    label = targets.labels[at];
  } else if (kind == OutputKind::binary) {
    LOCKSTEP_CHECK(at < targets.values.size());
    label = targets.values[at] > 0.5F ? 1 : 0;
  } else {
    LOCKSTEP_CHECK(targets.values.size() >= (at + 1) * static_cast<std::size_t>(width));
    const std::span<const float> values = row(targets.values, i);
    label = std::ranges::max_element(values) - values.begin();
  }
  return label >= 0 && label < classes() ? label : -1;
}

std::int64_t ClassReader::predicted(std::span<const float> outputs, std::int64_t i,
                                    std::int64_t label) const {
  const std::int64_t other = label == 0 ? 1 : 0;
  if (kind == OutputKind::binary) {
    const float logit = outputs[static_cast<std::size_t>(i)];
    return is_nan(logit) ? other : logit > 0 ? 1 : 0;
  }
  const std::span<const float> values = row(outputs, i);
  if (std::ranges::any_of(values, is_nan)) return other;
  return std::ranges::max_element(values) - values.begin();
}

double ClassReader::score(std::span<const float> outputs, std::int64_t i,
                          std::int64_t label) const {
  double score = 0;
  if (kind == OutputKind::binary) {
    score = static_cast<double>(outputs[static_cast<std::size_t>(i)]);
  } else {
    const std::span<const float> values = row(outputs, i);
    score = static_cast<double>(values[1]) - static_cast<double>(values[0]);
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return !std::isnan(score) ? score : label == 1 ? -kInfinity : kInfinity;
}

}  // namespace lockstep::inline v0::model
