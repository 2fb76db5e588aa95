// Sums that give exact metrics for any number of replicas: integers are added, and divided once at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace lockstep::model {

/// Sums over samples. Add those of all parts and replicas, then ask for the means.
struct MetricSums {
  double loss = 0;                ///< sum of per-sample losses
  std::int64_t samples = 0;       ///< how many there were
  std::int64_t correct = 0;       ///< samples whose label has the largest output (the first of equals)
  std::int64_t correct_top5 = 0;  ///< samples whose label is among the five largest outputs
  bool has_accuracy = false;      ///< whether the loss knows classes; false for mean squared error

  MetricSums& operator+=(const MetricSums& other);  ///< Adds the sums of other samples.

  /// Mean loss of a sample; not a number where there are no samples.
  double mean_loss() const { return mean(loss); }
  /// Fraction of the samples whose label has the largest output; not a number where there are no samples.
  double accuracy() const { return mean(static_cast<double>(correct)); }
  /// Fraction of the samples whose label is among the five largest outputs; not a number where there are no samples.
  double top5_accuracy() const { return mean(static_cast<double>(correct_top5)); }

 private:
  double mean(double sum) const {
    return samples ? sum / static_cast<double>(samples) : std::numeric_limits<double>::quiet_NaN();
  }
};

/// Sums as float32 that may be added over parts and replicas: counts below 2^24 stay exact, and the loss is carried in
/// two floats and keeps about 7 digits after the sum.
struct SummableMetrics {
  float loss_high = 0;     ///< the sum of losses, rounded to float
  float loss_low = 0;      ///< what rounding left over
  float samples = 0;       ///< as in MetricSums
  float correct = 0;       ///< as in MetricSums
  float correct_top5 = 0;  ///< as in MetricSums
  float non_finite = 0;    ///< parts whose loss was not finite as a float; their metrics count 0 samples

  static constexpr std::size_t kSize = 6;  ///< numbers of write()

  /// Ready to be added to those of others.
  constexpr explicit SummableMetrics(const MetricSums& sums) {
    constexpr double kLargest = std::numeric_limits<float>::max();
    if (!(sums.loss >= -kLargest && sums.loss <= kLargest)) {  // also where it is not a number
      non_finite = 1;
      return;
    }
    loss_high = static_cast<float>(sums.loss);
    loss_low = static_cast<float>(sums.loss - static_cast<double>(loss_high));
    samples = static_cast<float>(sums.samples);
    correct = static_cast<float>(sums.correct);
    correct_top5 = static_cast<float>(sums.correct_top5);
  }
  explicit SummableMetrics(std::span<const float, kSize> values);  ///< as write() wrote them, or a sum of several

  /// Writes kSize numbers.
  constexpr void write(float* values) const {
    values[0] = loss_high;
    values[1] = loss_low;
    values[2] = samples;
    values[3] = correct;
    values[4] = correct_top5;
    values[5] = non_finite;
  }
  /// Whether the losses of all parts in these sums are finite, and their sum too: `values` as write() wrote them.
  static constexpr bool is_finite(const float* values) { return values[kSize - 1] == 0 && values[0] - values[0] == 0; }
  /// has_accuracy is not carried.
  MetricSums sums() const;
};

}  // namespace lockstep::model
