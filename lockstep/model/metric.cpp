#include "lockstep/model/metric.h"

#include <cmath>

namespace lockstep::model {

MetricSums& MetricSums::operator+=(const MetricSums& other) {
  loss += other.loss;
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
  return {.loss = static_cast<double>(loss_high) + static_cast<double>(loss_low),
          .samples = std::llround(samples),
          .correct = std::llround(correct),
          .correct_top5 = std::llround(correct_top5)};
}

}  // namespace lockstep::model
