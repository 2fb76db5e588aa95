// Metric sums that are exact for any number of replicas: counts are added as integers and divided
// once at the end.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <variant>

namespace lockstep::model {

/// Sums over samples. Add the sums of all parts and replicas, then compute the means.
struct MetricSums {
  double loss_sum = 0;       ///< sum of per-sample losses
  std::int64_t samples = 0;  ///< number of samples
  /// Samples whose label has the largest output (the first in case of ties).
  std::int64_t correct = 0;
  std::int64_t correct_top5 = 0;  ///< samples whose label is among the five largest outputs
  bool has_accuracy = false;      ///< whether the loss has classes; false for mean squared error

  MetricSums& operator+=(const MetricSums& other);  ///< Adds the sums of other samples.

  /// Mean loss per sample; NaN if there are no samples.
  double loss() const { return mean(loss_sum); }
  /// Fraction of the samples whose label has the largest output; NaN if there are no samples.
  double accuracy() const { return mean(static_cast<double>(correct)); }
  /// Fraction of the samples whose label is among the five largest outputs; NaN if there are no
  /// samples.
  double top5_accuracy() const { return mean(static_cast<double>(correct_top5)); }

 private:
  double mean(double sum) const {
    // Not the NaN of a sum, which may have a sign that is printed.
    return samples > 0 && !std::isnan(sum) ? sum / static_cast<double>(samples)
                                           : std::numeric_limits<double>::quiet_NaN();
  }
};

/// Sums as float32 that can be added over parts and replicas: counts below 2^24 stay exact. The
/// loss is stored in two floats and keeps about 7 digits after summation.
struct SummableMetrics {
  float loss_high = 0;     ///< sum of losses, rounded to float
  float loss_low = 0;      ///< rounding error of loss_high
  float samples = 0;       ///< as in MetricSums
  float correct = 0;       ///< as in MetricSums
  float correct_top5 = 0;  ///< as in MetricSums
  /// Parts whose loss was not finite as a float; their metrics count 0 samples.
  float non_finite = 0;

  static constexpr std::size_t kSize = 6;  ///< number of floats that write() writes

  /// Converts sums of one part.
  constexpr explicit SummableMetrics(const MetricSums& sums) {
    constexpr double kLargest = std::numeric_limits<float>::max();
    if (!(sums.loss_sum >= -kLargest && sums.loss_sum <= kLargest)) {  // also true for NaN
      non_finite = 1;
      return;
    }
    loss_high = static_cast<float>(sums.loss_sum);
    loss_low = static_cast<float>(sums.loss_sum - static_cast<double>(loss_high));
    samples = static_cast<float>(sums.samples);
    correct = static_cast<float>(sums.correct);
    correct_top5 = static_cast<float>(sums.correct_top5);
  }
  /// from the output of write(), or from a sum of several
  explicit SummableMetrics(std::span<const float, kSize> values);

  /// Writes kSize floats.
  constexpr void write(float* values) const {
    values[0] = loss_high;
    values[1] = loss_low;
    values[2] = samples;
    values[3] = correct;
    values[4] = correct_top5;
    values[5] = non_finite;
  }
  /// Whether the losses of all parts, and their sum, are finite. `values` is the output of write().
  static constexpr bool is_finite(const float* values) {
    return values[kSize - 1] == 0 && values[0] - values[0] == 0;
  }
  /// The sums as MetricSums; has_accuracy is not transferred.
  MetricSums sums() const;
};

// Loss functions, their targets and their reference implementation.

/// Cross-entropy between softmax(logits) and class labels, with label smoothing: the target of the
/// true class is 1 - s
/// + s/K, of the others s/K (Szegedy et al., CVPR 2016).
struct SparseCategoricalCrossentropy {
  float label_smoothing = 0;  ///< part of the target spread over all classes, from 0 to less than 1
};

/// Mean of the squared differences between the outputs of a sample and its targets.
struct MeanSquaredError {};

/// The loss that training minimizes.
using Loss = std::variant<SparseCategoricalCrossentropy, MeanSquaredError>;

std::string to_string(const Loss& loss);  ///< the name used in network descriptions and checkpoints

/// The expected outputs of a batch. The loss determines which of `labels` and `values` is used.
struct Targets {
  std::span<const std::int32_t> labels = {};  ///< [samples], 0 .. outputs-1
  std::span<const float> values = {};         ///< [samples, outputs]
  /// For samples mixed in pairs (Zhang et al., "mixup", 2018), otherwise empty: the loss is
  /// `weights` times that of `labels` plus 1 - `weights` times that of the partner labels. Accuracy
  /// counts `labels` only.
  std::span<const std::int32_t> partner_labels = {};  ///< [samples]
  std::span<const float> weights = {};                ///< [samples], 0 to 1
};

/// Throws Error (input) for loss constants out of range. Throws Error (data) unless `targets` fit
/// outputs [samples, width]: a label in 0 .. width-1 for each sample, or a value for each output.
void check_targets(const Loss& loss, std::int64_t samples, std::int64_t width,
                   const Targets& targets);

/// Sums of loss and metrics over the samples of `outputs` [samples, width]. If `gradient` (same
/// shape) is not empty, it receives d(sum of losses)/d(outputs) / divisor. If the divisor is the
/// number of samples of the global batch (over the loss scale), the gradients of all replicas add
/// up to the gradient of the mean. Throws Error (data) for a label outside 0 .. width-1 and for a
/// weight outside 0 .. 1.
MetricSums compute_loss(const Loss& loss, std::span<const float> outputs, std::int64_t samples,
                        const Targets& targets, double divisor, std::span<float> gradient);

}  // namespace lockstep::model
