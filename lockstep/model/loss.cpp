#include "lockstep/model/loss.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "lockstep/base/error.h"

namespace lockstep::model {

MetricSums& MetricSums::operator+=(const MetricSums& other) {
  loss_sum += other.loss_sum;
  samples += other.samples;
  correct += other.correct;
  correct_top5 += other.correct_top5;
  has_accuracy = has_accuracy || other.has_accuracy;
  return *this;
}

SummableMetrics::SummableMetrics(std::span<const float, kSize> values)
    : loss_high(values[0]),
      loss_low(values[1]),
      samples(values[2]),
      correct(values[3]),
      correct_top5(values[4]),
      non_finite(values[5]) {}

MetricSums SummableMetrics::sums() const {
  return {.loss_sum = static_cast<double>(loss_high) + static_cast<double>(loss_low),
          .samples = std::llround(samples),
          .correct = std::llround(correct),
          .correct_top5 = std::llround(correct_top5)};
}

namespace {

using Row = std::span<const float>;

// Number of outputs that precede output `label` when sorted in descending order, ties in index
// order. NaN outputs come first, so that a diverged model is never counted as correct.
std::int64_t rank_of(Row outputs, std::size_t label) {
  const float chosen = outputs[label];
  std::int64_t before = 0;
  for (std::size_t i = 0; i < label; ++i) before += !(outputs[i] < chosen);
  for (std::size_t i = label + 1; i < outputs.size(); ++i) before += !(outputs[i] <= chosen);
  return before;
}

// The target classes of one sample: the first has `weight`, the second the remainder.
struct TrueClasses {
  std::size_t label = 0;
  std::size_t partner = 0;
  float weight = 1;
};

// Cross-entropy of one sample. With z' = z - max(z), no exponential overflows: loss = log(sum exp
// z') - (1 - s) z'[label] - s mean(z'), d loss / dz[k] = softmax(z)[k] - target[k].
double cross_entropy(Row outputs, const TrueClasses& classes, float smoothing, float scale,
                     std::span<float> gradient) {
  const float largest = *std::ranges::max_element(outputs);
  const auto width = static_cast<float>(outputs.size());
  float sum = 0;
  float shifted_sum = 0;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const float shifted = outputs[k] - largest;
    const float exponential = std::exp(shifted);
    sum += exponential;
    shifted_sum += shifted;
    if (!gradient.empty()) gradient[k] = exponential;
  }
  if (!gradient.empty()) {
    const float normalizer = scale / sum;
    const float off_target = scale * smoothing / width;
    for (float& value : gradient) value = value * normalizer - off_target;
    gradient[classes.label] -= scale * (1 - smoothing) * classes.weight;
    if (classes.weight < 1)
      gradient[classes.partner] -= scale * (1 - smoothing) * (1 - classes.weight);
  }
  // An output of minus infinity, an excluded class, must not be multiplied by a weight of 0: the
  // product is NaN.
  double of_classes = 0;
  if (classes.weight > 0)
    of_classes =
        static_cast<double>(classes.weight) * static_cast<double>(outputs[classes.label] - largest);
  if (classes.weight < 1)
    of_classes += static_cast<double>(1 - classes.weight) *
                  static_cast<double>(outputs[classes.partner] - largest);
  const double loss =
      static_cast<double>(std::log(sum)) - static_cast<double>(1 - smoothing) * of_classes;
  return smoothing == 0
             ? loss
             : loss - static_cast<double>(smoothing) * static_cast<double>(shifted_sum / width);
}

double squared_error(Row outputs, Row targets, float scale, std::span<float> gradient) {
  const auto width = static_cast<float>(outputs.size());
  double sum = 0;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const float difference = outputs[k] - targets[k];
    sum += static_cast<double>(difference) * static_cast<double>(difference);
    if (!gradient.empty()) gradient[k] = scale * 2 * difference / width;
  }
  return sum / static_cast<double>(width);
}

struct Batch {
  std::span<const float> outputs;
  std::size_t samples;
  std::size_t width;
  std::span<float> gradient;
  float scale;  // 1 / divisor

  Row row(std::size_t sample) const { return outputs.subspan(sample * width, width); }
  std::span<float> gradient_row(std::size_t sample) const {
    return gradient.empty() ? gradient : gradient.subspan(sample * width, width);
  }
};

TrueClasses classes_of(const Targets& targets, std::size_t sample) {
  const auto label = static_cast<std::size_t>(targets.labels[sample]);
  if (targets.partner_labels.empty()) return {.label = label, .partner = label};
  return {.label = label,
          .partner = static_cast<std::size_t>(targets.partner_labels[sample]),
          .weight = targets.weights[sample]};
}

MetricSums sums(const SparseCategoricalCrossentropy& loss, const Batch& batch,
                const Targets& targets) {
  MetricSums result{.has_accuracy = true};
  for (std::size_t i = 0; i < batch.samples; ++i) {
    const TrueClasses classes = classes_of(targets, i);
    result.loss_sum += cross_entropy(batch.row(i), classes, loss.label_smoothing, batch.scale,
                                     batch.gradient_row(i));
    const std::int64_t rank = rank_of(batch.row(i), classes.label);
    result.correct += rank < 1;
    result.correct_top5 += rank < 5;
  }
  return result;
}

MetricSums sums(const MeanSquaredError& /*loss*/, const Batch& batch, const Targets& targets) {
  MetricSums result;
  for (std::size_t i = 0; i < batch.samples; ++i)
    result.loss_sum +=
        squared_error(batch.row(i), targets.values.subspan(i * batch.width, batch.width),
                      batch.scale, batch.gradient_row(i));
  return result;
}

void check_labels(const Loss& loss, std::span<const std::int32_t> labels, std::size_t width) {
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (labels[i] < 0 || static_cast<std::size_t>(labels[i]) >= width)
      throw Error(ErrorCategory::data, to_string(loss),
                  fmt::format("expected labels 0 .. {} for {} classes", width - 1, width),
                  fmt::format("sample {} of the batch has label {}", i, labels[i]));
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

void check(const SparseCategoricalCrossentropy& loss, std::size_t samples, std::size_t width,
           const Targets& targets) {
  if (!(loss.label_smoothing >= 0 && loss.label_smoothing < 1))
    throw Error(ErrorCategory::input, "sparse_categorical_crossentropy",
                "expected label smoothing from 0 to below 1",
                fmt::format("got {}", loss.label_smoothing));
  if (targets.labels.size() != samples)
    throw Error(ErrorCategory::data, to_string(Loss(loss)),
                fmt::format("expected {} labels, one for each sample", samples),
                fmt::format("got {} labels and {} target values", targets.labels.size(),
                            targets.values.size()));
  check_labels(Loss(loss), targets.labels, width);
  check_mixing(Loss(loss), samples, width, targets);
}

void check(const MeanSquaredError& loss, std::size_t samples, std::size_t width,
           const Targets& targets) {
  if (targets.values.size() != samples * width)
    throw Error(ErrorCategory::data, to_string(Loss(loss)),
                fmt::format("expected {} target values for {} samples of {} outputs",
                            samples * width, samples, width),
                fmt::format("got {} target values and {} labels", targets.values.size(),
                            targets.labels.size()));
}

}  // namespace

std::string to_string(const Loss& loss) {
  if (const auto* entropy = std::get_if<SparseCategoricalCrossentropy>(&loss))
    return entropy->label_smoothing == 0
               ? "sparse_categorical_crossentropy"
               : fmt::format("sparse_categorical_crossentropy(label_smoothing={})",
                             entropy->label_smoothing);
  return "mean_squared_error";
}

void check_targets(const Loss& loss, std::int64_t samples, std::int64_t width,
                   const Targets& targets) {
  std::visit(
      [&](const auto& chosen) {
        check(chosen, static_cast<std::size_t>(samples), static_cast<std::size_t>(width), targets);
      },
      loss);
}

MetricSums compute_loss(const Loss& loss, std::span<const float> outputs, std::int64_t samples,
                        const Targets& targets, double divisor, std::span<float> gradient) {
  LOCKSTEP_CHECK_OP(samples, >=, 0);
  const auto count = static_cast<std::size_t>(samples);
  const std::size_t width = count == 0 ? 0 : outputs.size() / count;
  LOCKSTEP_CHECK_OP(outputs.size(), ==, count * width);
  if (!gradient.empty()) {
    LOCKSTEP_CHECK_OP(gradient.size(), ==, outputs.size());
    LOCKSTEP_CHECK_OP(divisor, >, 0);
  }
  check_targets(loss, samples, static_cast<std::int64_t>(width), targets);
  const Batch batch{outputs, count, width, gradient,
                    gradient.empty() ? 0 : static_cast<float>(1.0 / divisor)};
  MetricSums result =
      std::visit([&](const auto& chosen) { return sums(chosen, batch, targets); }, loss);
  result.samples = samples;
  return result;
}

}  // namespace lockstep::model
