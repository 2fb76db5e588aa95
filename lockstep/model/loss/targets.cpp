#include "lockstep/model/loss/targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <variant>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::model {
namespace {

void check_labels(const Loss& loss, std::span<const std::int32_t> labels, std::size_t width,
                  std::size_t positions = 1) {
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (positions > 1 && labels[i] == kMasked) continue;
    if (labels[i] >= 0 && static_cast<std::size_t>(labels[i]) < width) continue;
    throw Error(
        ErrorCategory::data, to_string(loss),
        fmt::format("expected labels 0 .. {} for {} classes{}", width - 1, width,
                    positions > 1 ? fmt::format(", or {} to mask a position", kMasked) : ""),
        fmt::format("sample {} of the batch has label {}{}", i / positions, labels[i],
                    positions > 1 ? fmt::format(" at position {}", i % positions) : ""));
  }
}

void check_mixing(const Loss& loss, std::size_t samples, std::size_t width,
                  const Targets& targets) {
  if (targets.partner_labels.empty() && targets.weights.empty()) return;
  if (targets.partner_labels.size() != samples || targets.weights.size() != samples)
    throw Error(
        ErrorCategory::data, to_string(loss),
        fmt::format("expected {0} partner labels and {0} weights", samples),
        fmt::format("got {} and {}", targets.partner_labels.size(), targets.weights.size()));
  check_labels(loss, targets.partner_labels, width);
  for (std::size_t i = 0; i < samples; ++i)
    if (!(targets.weights[i] >= 0 && targets.weights[i] <= 1))
      throw Error(ErrorCategory::data, to_string(loss), "expected mixup weights from 0 to 1",
                  fmt::format("sample {} of the batch has {}", i, targets.weights[i]));
}

// `expected`: number of positions of the outputs; 0: any.
void check_classes(const Loss& loss, std::size_t samples, std::size_t width, const Targets& targets,
                   std::size_t expected) {
  const auto actual =
      static_cast<std::size_t>(positions_of(targets, static_cast<std::int64_t>(samples)));
  const std::size_t positions = expected > 0 ? expected : width % actual == 0 ? actual : 1;
  if (targets.labels.size() != samples * positions)
    throw Error(ErrorCategory::data, to_string(loss),
                positions > 1 ? fmt::format("expected {} labels, {} for each sample",
                                            samples * positions, positions)
                              : fmt::format("expected {} labels, one for each sample", samples),
                fmt::format("got {} labels and {} target values", targets.labels.size(),
                            targets.values.size()));
  check_labels(loss, targets.labels, width / positions, positions);
  if (positions > 1 && !targets.partner_labels.empty())
    throw Error(ErrorCategory::data, to_string(loss),
                "expected unmixed samples with labels of several positions (no mixup)",
                "the samples are mixed");
  check_mixing(loss, samples, width, targets);
}

void check_values(const Loss& loss, std::size_t samples, std::size_t width,
                  const Targets& targets) {
  if (targets.values.size() != samples * width)
    throw Error(ErrorCategory::data, to_string(loss),
                fmt::format("expected {} target values for {} samples of {} outputs",
                            samples * width, samples, width),
                fmt::format("got {} target values and {} labels", targets.values.size(),
                            targets.labels.size()));
}

/// Accepts values that are not finite: the loss then is not finite, which the step reports.
void check_probabilities(const Loss& loss, std::size_t samples, std::size_t width,
                         const Targets& targets) {
  check_values(loss, samples, width, targets);
  for (std::size_t i = 0; i < samples; ++i) {
    if (targets.sample_weights.size() == samples && targets.sample_weights[i] == 0) continue;
    for (const float value : targets.values.subspan(i * width, width))
      if (std::isfinite(value) && !(value >= 0 && value <= 1))
        throw Error(ErrorCategory::data, to_string(loss), "expected target values from 0 to 1",
                    fmt::format("sample {} of the batch has {}", i, value));
  }
}

void check(const CategoricalCrossentropy& loss, std::size_t samples, std::size_t width,
           const Targets& targets) {
  if (width < 2)
    throw Error(ErrorCategory::data, to_string(Loss(loss)), "expected at least two classes",
                fmt::format("got {} output", width));
  check_probabilities(Loss(loss), samples, width, targets);
}

void check(const BinaryCrossentropy& loss, std::size_t samples, std::size_t width,
           const Targets& targets) {
  if (width != 1 || !targets.values.empty() || targets.labels.size() != samples)
    return check_probabilities(Loss(loss), samples, width, targets);
  check_labels(Loss(loss), targets.labels, 2);
}

void check(const CustomLossPointer& loss, std::size_t samples, std::size_t width,
           const Targets& targets) {
  const bool fits = targets.labels.empty()
                        ? targets.values.size() % std::max<std::size_t>(samples, 1) == 0
                        : targets.labels.size() == samples;
  if (!fits)
    throw Error(
        ErrorCategory::data, loss->name(),
        fmt::format("expected a label, or an equal number of target values, for each of {} samples",
                    samples),
        fmt::format("got {} target values and {} labels", targets.values.size(),
                    targets.labels.size()));
  if (loss->activation().empty()) return;
  const std::int64_t classes = class_count(Loss(loss), static_cast<std::int64_t>(width));
  if (targets.labels.empty() || classes == 0)
    return check_values(Loss(loss), samples, width, targets);
  check_labels(Loss(loss), targets.labels, static_cast<std::size_t>(classes));
}

template <typename T>
void check(const T& loss, std::size_t samples, std::size_t width, const Targets& targets) {
  check_values(Loss(loss), samples, width, targets);
}

void check_sample_weights(const Loss& loss, std::size_t samples, const Targets& targets) {
  const std::span<const float> weights = targets.sample_weights;
  if (weights.empty()) return;
  if (weights.size() != samples && (samples == 0 || weights.size() != targets.labels.size()))
    throw Error(ErrorCategory::data, to_string(loss),
                fmt::format("expected {} sample weights", samples),
                fmt::format("got {}", weights.size()));
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (!(weights[i] >= 0 && std::isfinite(weights[i])))
      throw Error(
          ErrorCategory::data, to_string(loss), "expected finite sample weights of 0 or more",
          fmt::format("sample {} of the batch has {}", i * samples / weights.size(), weights[i]));
}

}  // namespace

std::int64_t positions_of(const Targets& targets, std::int64_t samples) {
  const std::int64_t labels = std::ssize(targets.labels);
  return samples > 0 && labels > 0 && labels % samples == 0 ? labels / samples : 1;
}

void check_targets(const Loss& loss, std::int64_t samples, std::int64_t width,
                   const Targets& targets, std::int64_t positions) {
  check_options(loss);
  check_sample_weights(loss, static_cast<std::size_t>(samples), targets);
  if (!targets.partner_labels.empty() &&
      !std::holds_alternative<SparseCategoricalCrossentropy>(loss))
    throw Error(ErrorCategory::data, to_string(loss), "expected cross-entropy for mixup",
                "the samples are mixed");
  std::visit(
      [&]<typename T>(const T& chosen) {
        const auto count = static_cast<std::size_t>(samples);
        const auto outputs = static_cast<std::size_t>(width);
        if constexpr (std::is_same_v<T, SparseCategoricalCrossentropy>)
          check_classes(loss, count, outputs, targets, static_cast<std::size_t>(positions));
        else
          check(chosen, count, outputs, targets);
      },
      loss);
}

void check_class_weights(const Loss& loss, std::int64_t outputs, std::span<const float> weights) {
  if (weights.empty()) return;
  const std::int64_t classes = class_count(loss, outputs);
  if (classes == 0)
    throw Error(ErrorCategory::input, "class-weights", "expected a loss with classes",
                fmt::format("got {}", to_string(loss)));
  if (static_cast<std::int64_t>(weights.size()) != classes)
    throw Error(ErrorCategory::input, "class-weights",
                fmt::format("expected {} weights, one for each class", classes),
                fmt::format("got {} weights", weights.size()));
  for (std::size_t k = 0; k < weights.size(); ++k)
    if (!(weights[k] >= 0 && std::isfinite(weights[k])))
      throw Error(ErrorCategory::input, "class-weights", "expected finite weights of 0 or more",
                  fmt::format("class {} has {}", k, weights[k]));
  if (std::ranges::count(weights, 0.0F) == std::ssize(weights))
    throw Error(ErrorCategory::input, "class-weights", "expected a class with a weight above 0",
                "got 0 for all");
}

void apply_class_weights(const Targets& targets, std::span<const float> class_weights,
                         std::int64_t samples, std::vector<float>& weights) {
  const auto count = static_cast<std::size_t>(samples);
  const auto positions = static_cast<std::size_t>(positions_of(targets, samples));
  const auto label_weight = [&](std::int32_t label) {
    const auto at = static_cast<std::size_t>(label);
    return label >= 0 && at < class_weights.size() ? class_weights[at] : 1.0F;
  };
  weights.assign(count * positions, 1);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (targets.sample_weights.size() == count)
      weights[i] = targets.sample_weights[i / positions];
    else if (targets.sample_weights.size() == weights.size())
      weights[i] = targets.sample_weights[i];
    if (targets.labels.size() == weights.size()) {
      float class_weight = label_weight(targets.labels[i]);
      if (targets.partner_labels.size() == count && targets.weights.size() == count)
        class_weight = targets.weights[i] * class_weight +
                       (1 - targets.weights[i]) * label_weight(targets.partner_labels[i]);
      weights[i] *= class_weight;
    } else if (class_weights.size() == 2 && targets.values.size() == count) {
      const float second = targets.values[i];
      weights[i] *= second * class_weights[1] + (1 - second) * class_weights[0];
    } else if (targets.values.size() == count * class_weights.size()) {
      float class_weight = 0;
      for (std::size_t k = 0; k < class_weights.size(); ++k)
        class_weight += targets.values[i * class_weights.size() + k] * class_weights[k];
      weights[i] *= class_weight;
    }
  }
}

}  // namespace lockstep::inline v0::model
