#include "lockstep/model/loss/metric_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::model {

MetricSums& MetricSums::operator+=(const MetricSums& other) {
  loss_sum += other.loss_sum;
  samples += other.samples;
  correct += other.correct;
  correct_top5 += other.correct_top5;
  classes = std::max(classes, other.classes);
  weight_excess += other.weight_excess;
  more_positions += other.more_positions;
  masked += other.masked;
  return *this;
}

void require_weights(const MetricSums& sums, std::string_view where) {
  if (sums.samples > 0 && !(sums.weight_sum() > 0))
    throw Error(
        ErrorCategory::data, where, "expected weights whose sum is above 0",
        sums.masked == 0
            ? fmt::format("got weight 0 for all {} samples", sums.samples)
            : fmt::format("got weight 0, or masked labels, at all {} positions of {} samples",
                          sums.rows(), sums.samples));
}

SummableMetrics::SummableMetrics(std::span<const float, kSize> values)
    : loss_high(values[0]),
      loss_low(values[1]),
      samples(values[2]),
      correct(values[3]),
      correct_top5(values[4]),
      weight_sum(values[5]),
      rows(values[6]),
      positions(values[7]),
      non_finite(values[8]) {}

MetricSums SummableMetrics::sums() const {
  return {.loss_sum = static_cast<double>(loss_high) + static_cast<double>(loss_low),
          .samples = std::llround(samples),
          .correct = std::llround(correct),
          .correct_top5 = std::llround(correct_top5),
          .weight_excess = static_cast<double>(weight_sum) - static_cast<double>(positions),
          .more_positions = std::llround(rows) - std::llround(samples),
          .masked = std::llround(rows) - std::llround(positions)};
}

}  // namespace lockstep::inline v0::model
