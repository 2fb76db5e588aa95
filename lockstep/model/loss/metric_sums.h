// Metric sums that are exact for any number of replicas: counts are added as integers and divided
// once at the end.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

namespace lockstep::inline v0::model {

/// Sums over the positions of samples; a loss compares each position with one target. A sample has
/// one position, or T positions for an output [T, V] and labels [T]. Add the sums of all parts and
/// replicas, then compute the means.
struct MetricSums {
  double loss_sum = 0;       ///< sum of the losses of all positions, each times its weight
  std::int64_t samples = 0;  ///< number of samples
  /// Positions whose label has the largest output (the first in case of ties).
  std::int64_t correct = 0;
  std::int64_t correct_top5 = 0;  ///< positions whose label is among the five largest outputs
  std::int64_t classes = 0;       ///< classes of the loss; 0 for one of values, as mean squares
  /// Sum of the weights of the positions that count, minus positions(): exactly 0 if all weights
  /// are 1.
  double weight_excess = 0;
  std::int64_t more_positions = 0;  ///< positions of the samples beyond one each
  std::int64_t masked = 0;          ///< positions with the label kMasked, which do not count

  MetricSums& operator+=(const MetricSums& other);  ///< adds the sums of other samples

  /// Whether accuracy() has a meaning.
  constexpr bool has_accuracy() const { return classes > 0; }
  /// Whether top5_accuracy() has a meaning: of five classes it is always 1.
  constexpr bool has_top5() const { return classes > 5; }

  /// Number of positions, masked ones included.
  constexpr std::int64_t rows() const { return samples + more_positions; }
  /// Number of positions that count, equal to `samples` if each has one.
  constexpr std::int64_t positions() const { return rows() - masked; }
  /// Sum of the weights of the positions that count.
  constexpr double weight_sum() const { return static_cast<double>(positions()) + weight_excess; }
  /// Mean loss per position, by weight; NaN if there are none, or if all have weight 0.
  double loss() const { return mean(loss_sum, weight_sum()); }
  /// Fraction of the positions whose label has the largest output; NaN if there are none.
  double accuracy() const {
    return mean(static_cast<double>(correct), static_cast<double>(positions()));
  }
  /// Fraction of the positions whose label is among the five largest outputs; NaN if there are
  /// none.
  double top5_accuracy() const {
    return mean(static_cast<double>(correct_top5), static_cast<double>(positions()));
  }

 private:
  static double mean(double sum, double weights) {
    // Not the NaN of a sum, whose sign would be printed.
    return weights > 0 && !std::isnan(sum) ? sum / weights
                                           : std::numeric_limits<double>::quiet_NaN();
  }
};

/// Throws Error (data) of `where`, such as "epoch 2", if all samples are masked or have weight 0.
void require_weights(const MetricSums& sums, std::string_view where);

/// Sums as float32 that can be added over parts and replicas: counts below 2^24 stay exact, larger
/// ones, such as those of the positions of long sequences, are rounded to 24 bits, so that a mean
/// keeps 7 digits. The loss is stored in two floats and keeps about 7 digits after summation.
struct SummableMetrics {
  float loss_high = 0;     ///< sum of losses, rounded to float
  float loss_low = 0;      ///< rounding error of loss_high
  float samples = 0;       ///< as in MetricSums
  float correct = 0;       ///< as in MetricSums
  float correct_top5 = 0;  ///< as in MetricSums
  float weight_sum = 0;    ///< as in MetricSums; equals `positions` if all weights are 1
  float rows = 0;          ///< as in MetricSums; equals `samples` with one position each
  float positions = 0;     ///< as in MetricSums; equals `rows` if none is masked
  /// Parts whose loss or weights were not finite as a float; their metrics count 0 samples.
  float non_finite = 0;

  static constexpr std::size_t kSize = 9;  ///< number of floats that write() writes

  /// Converts sums of one part.
  constexpr explicit SummableMetrics(const MetricSums& sums) {
    constexpr double kLargest = std::numeric_limits<float>::max();
    if (!(sums.loss_sum >= -kLargest && sums.loss_sum <= kLargest &&
          sums.weight_sum() <= kLargest)) {  // also true for NaN
      non_finite = 1;
      return;
    }
    loss_high = static_cast<float>(sums.loss_sum);
    loss_low = static_cast<float>(sums.loss_sum - static_cast<double>(loss_high));
    samples = static_cast<float>(sums.samples);
    correct = static_cast<float>(sums.correct);
    correct_top5 = static_cast<float>(sums.correct_top5);
    weight_sum = static_cast<float>(sums.weight_sum());
    rows = static_cast<float>(sums.rows());
    positions = static_cast<float>(sums.positions());
  }
  /// From the output of write(), or from a sum of several.
  explicit SummableMetrics(std::span<const float, kSize> values);

  /// Writes kSize floats.
  constexpr void write(float* values) const {
    values[0] = loss_high;
    values[1] = loss_low;
    values[2] = samples;
    values[3] = correct;
    values[4] = correct_top5;
    values[5] = weight_sum;
    values[6] = rows;
    values[7] = positions;
    values[8] = non_finite;
  }
  /// Whether the losses and weights of all parts, their sums, and gradient_factor() are finite.
  /// `values` is the output of write().
  static constexpr bool is_finite(const float* values) {
    const float factor = gradient_factor(values);
    return values[kSize - 1] == 0 && values[0] - values[0] == 0 && values[5] - values[5] == 0 &&
           factor - factor == 0;
  }
  /// Whether there are samples, but all are masked or have weight 0.
  static constexpr bool is_weightless(const float* values) {
    return values[2] > 0 && !(values[5] > 0);
  }
  /// The factor that turns a gradient over the number of rows into one over the sum of weights:
  /// exactly 1 if all weights are 1 and nothing is masked; 0 if all weights are 0. `values` is the
  /// sum of the output of write() over all replicas.
  static constexpr float gradient_factor(const float* values) {
    const float rows = values[6];
    const float weights = values[5];
    if (weights == rows) return 1;
    return weights > 0 ? rows / weights : 0;
  }
  /// The sums as MetricSums; the number of classes is not transferred.
  MetricSums sums() const;
};

}  // namespace lockstep::inline v0::model
