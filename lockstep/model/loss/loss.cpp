#include "lockstep/model/loss/loss.h"

#include <fmt/format.h>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::model {
namespace {

using Row = std::span<const float>;

// Outputs of a row that are computed at a time, with vector instructions. The sum of a row does not
// depend on where the row is.
constexpr Eigen::Index kLogitBlock = 512;
using LogitBlock = Eigen::Array<float, Eigen::Dynamic, 1, Eigen::ColMajor, kLogitBlock, 1>;
using WrittenLogits = Eigen::Map<Eigen::ArrayXf>;

// logits - largest, and their exponentials.
struct Exponentials {
  LogitBlock shifted;
  LogitBlock values;

  Exponentials(Row logits, float largest) {
    constexpr float kLeast = -87;  // lowest argument whose exponential is a normal number
    const auto count = static_cast<Eigen::Index>(logits.size());
    shifted = Eigen::Map<const Eigen::ArrayXf>(logits.data(), count) - largest;
    if (std::isinf(largest))
      std::ranges::transform(logits, shifted.data(),
                             [&](float logit) { return below_largest(logit, largest); });
    values = shifted.exp();
    // Eigen's function is clamped, but an excluded class has probability 0.
    for (Eigen::Index k = 0; k < count; ++k) values[k] = shifted[k] < kLeast ? 0 : values[k];
  }
};

// Calls visit(first, exponentials) for the blocks of a row.
template <typename Visit>
void for_exponentials(Row logits, float largest, const Visit& visit) {
  for (std::size_t first = 0; first < logits.size(); first += kLogitBlock) {
    const std::size_t count = std::min<std::size_t>(kLogitBlock, logits.size() - first);
    visit(first, Exponentials(logits.subspan(first, count), largest));
  }
}

// Number of `values` for which `is_behind` is false.
template <typename IsBehind>
std::int64_t count_before(Row values, const IsBehind& is_behind) {
  constexpr std::size_t kAtOnce = 4096;  // values per 32-bit counter
  std::int64_t count = 0;
  for (std::size_t first = 0; first < values.size(); first += kAtOnce) {
    std::int32_t some = 0;
    for (const float value : values.subspan(first, std::min(kAtOnce, values.size() - first)))
      some += !is_behind(value);
    count += some;
  }
  return count;
}

// Number of outputs that precede output `label` when sorted in descending order, ties in index
// order. NaN outputs come first, so that a diverged model is never counted as correct.
std::int64_t rank_of(Row outputs, std::size_t label) {
  const float chosen = outputs[label];
  return count_before(outputs.first(label), [=](float value) { return value < chosen; }) +
         count_before(outputs.subspan(label + 1), [=](float value) { return value <= chosen; });
}

// The target classes of one sample: the first has `weight`, the second the remainder.
struct TrueClasses {
  std::size_t label = 0;
  std::size_t partner = 0;
  float weight = 1;
};

// Cross-entropy of one sample. With z' = z - max(z), no exponential overflows: loss = log(sum exp
// z') - (1 - s) z'[label] - s mean(z'), d loss / dz[k] = softmax(z)[k] - target[k]. The gradient
// may overwrite the outputs.
double cross_entropy(Row outputs, const TrueClasses& classes, float smoothing, float scale,
                     std::span<float> gradient) {
  const auto count = static_cast<Eigen::Index>(outputs.size());
  const float largest = Eigen::Map<const Eigen::ArrayXf>(outputs.data(), count).maxCoeff();
  const auto width = static_cast<float>(outputs.size());
  // An output of minus infinity, an excluded class, must not be multiplied by a weight of 0: the
  // product is NaN.
  double target_logit = 0;
  if (classes.weight > 0)
    target_logit = static_cast<double>(classes.weight) *
                   static_cast<double>(below_largest(outputs[classes.label], largest));
  if (classes.weight < 1)
    target_logit += static_cast<double>(1 - classes.weight) *
                    static_cast<double>(below_largest(outputs[classes.partner], largest));
  float sum = 0;
  float shifted_sum = 0;
  for_exponentials(outputs, largest, [&](std::size_t first, const Exponentials& exponentials) {
    sum += exponentials.values.sum();
    if (smoothing != 0) shifted_sum += exponentials.shifted.sum();
    if (!gradient.empty())
      WrittenLogits(&gradient[first], exponentials.values.size()) = exponentials.values;
  });
  if (!gradient.empty()) {
    const float normalizer = scale / sum;
    const float off_target = scale * smoothing / width;
    for (float& value : gradient) value = value * normalizer - off_target;
    gradient[classes.label] -= scale * (1 - smoothing) * classes.weight;
    if (classes.weight < 1)
      gradient[classes.partner] -= scale * (1 - smoothing) * (1 - classes.weight);
  }
  const double loss =
      static_cast<double>(std::log(sum)) - static_cast<double>(1 - smoothing) * target_logit;
  return smoothing == 0
             ? loss
             : loss - static_cast<double>(smoothing) * static_cast<double>(shifted_sum / width);
}

// Cross-entropy of one sample with a distribution `target` over the classes: loss = sum target
// (log(sum exp z') - z').
double cross_entropy_of(const CategoricalCrossentropy& loss, Row outputs, Row targets, float scale,
                        std::span<float> gradient) {
  const auto count = static_cast<Eigen::Index>(outputs.size());
  const float largest = Eigen::Map<const Eigen::ArrayXf>(outputs.data(), count).maxCoeff();
  const auto width = static_cast<float>(outputs.size());
  float sum = 0;
  float total = 0;
  for_exponentials(outputs, largest, [&](std::size_t first, const Exponentials& exponentials) {
    sum += exponentials.values.sum();
    if (!gradient.empty())
      WrittenLogits(&gradient[first], exponentials.values.size()) = exponentials.values;
  });
  for (const float target : targets) total += loss.smoothed(target, width);
  const float log_sum = std::log(sum);
  double result = 0;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const float target = loss.smoothed(targets[k], width);
    // 0 times minus infinity, an excluded class, is NaN
    if (target != 0)
      result += static_cast<double>(target) *
                static_cast<double>(log_sum - below_largest(outputs[k], largest));
    if (!gradient.empty()) gradient[k] = scale * (gradient[k] / sum * total - target);
  }
  return result;
}

// Consecutive rows of a batch.
struct Batch {
  std::span<const float> outputs;
  std::size_t first;      // index in the batch
  std::size_t rows;       // number of rows
  std::size_t samples;    // samples of the batch
  std::size_t positions;  // positions per sample
  std::span<float> gradient;
  float scale;  // 1 / divisor
  const Targets& targets;

  std::size_t width() const { return outputs.size() / rows; }  // outputs per position
};

float weight_of(const Targets& targets, std::size_t sample) {
  return targets.sample_weights.empty() ? 1 : targets.sample_weights[sample];
}

TrueClasses classes_of(const Targets& targets, std::size_t sample) {
  const auto label = static_cast<std::size_t>(targets.labels[sample]);
  if (targets.partner_labels.empty()) return {.label = label, .partner = label};
  return {.label = label,
          .partner = static_cast<std::size_t>(targets.partner_labels[sample]),
          .weight = targets.weights[sample]};
}

// One sample of a batch, or one position of a sample with several.
struct Sample {
  const Targets& targets;
  std::size_t index;  // index in the batch
  Row outputs;
  std::span<float> gradient;  // may be empty
  float scale;                // factor on the gradient
  double evaluated;           // loss of a CustomLoss

  Row values() const { return targets.values.subspan(index * outputs.size(), outputs.size()); }
  float target(std::size_t output) const {
    return targets.values.empty() ? static_cast<float>(targets.labels[index]) : values()[output];
  }
};

// Returns the loss of one sample and writes its gradient.

double evaluate(const SparseCategoricalCrossentropy& loss, const Sample& sample) {
  return cross_entropy(sample.outputs, classes_of(sample.targets, sample.index),
                       loss.label_smoothing, sample.scale, sample.gradient);
}

double evaluate(const CategoricalCrossentropy& loss, const Sample& sample) {
  return cross_entropy_of(loss, sample.outputs, sample.values(), sample.scale, sample.gradient);
}

template <ElementwiseLoss T>
double evaluate(const T& loss, const Sample& sample) {
  const auto width = static_cast<float>(sample.outputs.size());
  double sum = 0;
  for (std::size_t k = 0; k < sample.outputs.size(); ++k) {
    const float output = sample.outputs[k];
    const float target = sample.target(k);
    sum += loss.value(output, target);
    if (!sample.gradient.empty())
      sample.gradient[k] = sample.scale * loss.derivative(output, target) / width;
  }
  return sum / static_cast<double>(width);
}

// The loss was computed by CustomLoss::evaluate() for the whole batch.
double evaluate(const CustomLossPointer& /*loss*/, const Sample& sample) {
  for (float& value : sample.gradient) value *= sample.scale;
  return sample.evaluated;
}

// The number of classes ranked above the true class of a sample.

std::int64_t rank_in(const SparseCategoricalCrossentropy& /*loss*/, const Sample& sample) {
  return rank_of(sample.outputs, static_cast<std::size_t>(sample.targets.labels[sample.index]));
}

std::int64_t rank_in(const CategoricalCrossentropy& /*loss*/, const Sample& sample) {
  const Row values = sample.values();
  return rank_of(sample.outputs,
                 static_cast<std::size_t>(std::ranges::max_element(values) - values.begin()));
}

std::int64_t rank_in(const BinaryCrossentropy& loss, const Sample& sample) {
  return loss.rank(sample.outputs[0], sample.target(0));
}

std::int64_t rank_in(const CustomLossPointer& loss, const Sample& sample) {
  if (loss->activation() == BinaryCrossentropy::kActivation)
    return rank_in(BinaryCrossentropy(), sample);
  return sample.targets.labels.empty() ? rank_in(CategoricalCrossentropy(), sample)
                                       : rank_in(SparseCategoricalCrossentropy(), sample);
}

template <typename T>
std::int64_t rank_in(const T& /*loss*/, const Sample& /*sample*/) {
  return 0;  // no classes
}

template <typename T>
MetricSums sums(const T& loss, std::int64_t classes, const Batch& batch) {
  const std::int64_t samples = batch.first == 0 ? static_cast<std::int64_t>(batch.samples) : 0;
  MetricSums result{.samples = samples,
                    .classes = classes,
                    .more_positions = static_cast<std::int64_t>(batch.rows) - samples};
  std::vector<double> evaluated;
  if constexpr (std::is_same_v<T, CustomLossPointer>) {
    evaluated.resize(batch.rows);
    if (batch.rows > 0) loss->evaluate(batch.outputs, batch.targets, evaluated, batch.gradient);
  }
  const std::span<const float> weights = batch.targets.sample_weights;
  const std::size_t rows_per_weight =
      weights.empty() ? 1 : batch.samples * batch.positions / weights.size();
  for (std::size_t row = 0; row < batch.rows; ++row) {
    const std::size_t i = batch.first + row;
    const bool is_masked = batch.positions > 1 && batch.targets.labels[i] == kMasked;
    const float weight = is_masked ? 0 : weight_of(batch.targets, i / rows_per_weight);
    const auto row_of = [&](auto values) {
      return values.subspan(row * batch.width(), batch.width());
    };
    const Sample sample{
        batch.targets,         i,
        row_of(batch.outputs), batch.gradient.empty() ? batch.gradient : row_of(batch.gradient),
        batch.scale * weight,  evaluated.empty() ? 0 : evaluated[row]};
    // Before the gradient, which may overwrite the outputs.
    const std::int64_t rank = is_masked || classes == 0 ? 0 : rank_in(loss, sample);
    if (weight > 0)
      result.loss_sum += static_cast<double>(weight) * evaluate(loss, sample);
    else
      std::ranges::fill(sample.gradient, 0.0F);
    if (is_masked) {
      ++result.masked;
      continue;
    }
    result.weight_excess += static_cast<double>(weight) - 1;
    if (classes == 0) continue;
    result.correct += rank < 1;
    result.correct_top5 += rank < 5;
  }
  return result;
}

}  // namespace

void CustomLoss::evaluate(std::span<const float> outputs, const Targets& targets,
                          std::span<double> losses, std::span<float> gradients) const {
  const std::size_t width = outputs.size() / losses.size();
  const std::size_t values = targets.values.size() / losses.size();
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (weight_of(targets, i) == 0) continue;
    SampleTargets target;
    if (targets.labels.empty())
      target.values = targets.values.subspan(i * values, values);
    else
      target.label = targets.labels[i];
    const Row row = outputs.subspan(i * width, width);
    if (!gradients.empty()) gradient(row, target, gradients.subspan(i * width, width));
    losses[i] = value(row, target);
  }
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
  const auto positions = static_cast<std::size_t>(positions_of(targets, samples));
  const Batch batch{.outputs = outputs,
                    .first = 0,
                    .rows = count * positions,
                    .samples = count,
                    .positions = positions,
                    .gradient = gradient,
                    .scale = gradient.empty() ? 0 : static_cast<float>(1.0 / divisor),
                    .targets = targets};
  const std::int64_t classes = class_count(loss, static_cast<std::int64_t>(width / positions));
  return std::visit([&](const auto& chosen) { return sums(chosen, classes, batch); }, loss);
}

MetricSums compute_loss(const SparseCategoricalCrossentropy& loss, std::span<const float> outputs,
                        const RowRange& rows, std::int64_t samples, const Targets& targets,
                        double divisor, std::span<float> gradient) {
  LOCKSTEP_CHECK_OP(rows.count, >, 0);
  return sums(loss, std::ssize(outputs) / rows.count,
              Batch{.outputs = outputs,
                    .first = static_cast<std::size_t>(rows.first),
                    .rows = static_cast<std::size_t>(rows.count),
                    .samples = static_cast<std::size_t>(samples),
                    .positions = static_cast<std::size_t>(positions_of(targets, samples)),
                    .gradient = gradient,
                    .scale = gradient.empty() ? 0 : static_cast<float>(1.0 / divisor),
                    .targets = targets});
}

}  // namespace lockstep::inline v0::model
